"""Callers that add and delete batches of entries without pause, and remember what was acknowledged, and when."""

import asyncio
import time
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field

from tests.faults.list_calls import ListAnswer, ListCaller
from workshop.rig.caller import NoAnswerError

LIST = "url-block"
RETRY_SECONDS = 0.2
NAME_LENGTH = 9
# The entries, and the changes, of each batch.
ENTRIES = f"SELECT left(entry, {NAME_LENGTH}), count(*) FROM list_entries GROUP BY 1"
CHANGES = f"SELECT left(entries[1], {NAME_LENGTH}), count(*) FROM list_changes GROUP BY 1"
_UNAVAILABLE = frozenset({"storage_unavailable"})


@dataclass(slots=True)
class Ledger:
    """The batches that callers added, by the answer that they got; names begin with the three characters `prefix`."""

    size: int = 50
    prefix: str = "f00"
    expected: Collection[str] = _UNAVAILABLE  # errors of a 503 that may come during an outage
    delete_every: int = 0  # which of the added batches is deleted again; 0: none
    acknowledged: dict[str, float] = field(default_factory=dict)
    in_doubt: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)  # by an acknowledged call
    deletion_in_doubt: set[str] = field(default_factory=set)
    _number: int = 0

    async def write_on(self, caller: ListCaller, stopped: asyncio.Event, pause: float = 0.0) -> None:
        while not stopped.is_set():
            self._number += 1
            number, name = self._number, f"{self.prefix}{self._number:06}"
            entries = [f"{name}x{index:02}.example" for index in range(self.size)]
            if not await self._is_acknowledged(caller.add(LIST, entries, "")):
                self.in_doubt.add(name)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.acknowledged[name] = time.monotonic()
            await asyncio.sleep(pause)
            if self.delete_every and number % self.delete_every == 0:
                done = await self._is_acknowledged(caller.delete(LIST, entries))
                (self.deleted if done else self.deletion_in_doubt).add(name)

    async def _is_acknowledged(self, call: Awaitable[ListAnswer]) -> bool:
        try:
            answer = await call
        except NoAnswerError:
            return False
        assert answer.status == 200 or (answer.status == 503 and answer.error in self.expected), str(answer)
        return answer.status == 200

    def lost(self, entries: Mapping[str, int]) -> list[str]:
        """Return the acknowledged changes that the stored entries do not have; a deletion has a minus before it."""
        deleted = self.deleted | self.deletion_in_doubt
        added = [name for name in self.acknowledged if name not in deleted and entries.get(name) != self.size]
        return added + [f"-{name}" for name in sorted(self.deleted) if entries.get(name, 0) != 0]

    def torn(self, entries: Mapping[str, int], changes: Mapping[str, int]) -> list[str]:
        """Return the batches that are stored in part, or more often than they were sent."""
        doubtful = self.in_doubt | self.deletion_in_doubt
        halves = [name for name in sorted(doubtful) if entries.get(name, 0) not in (0, self.size)]
        sent = dict.fromkeys(self.deleted | self.deletion_in_doubt, 2)
        own = {name: count for name, count in changes.items() if name.startswith(self.prefix)}
        return halves + [name for name, count in own.items() if count > sent.get(name, 1)]


def counts(text: str) -> dict[str, int]:
    """Return the numbers by name of what psql printed."""
    return {name: int(count) for name, _, count in (line.partition("|") for line in text.splitlines())}
