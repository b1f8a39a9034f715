"""Callers that add batches of entries without pause, and remember which of them were acknowledged, and when."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from rig.caller import NoAnswerError
from tests.faults.list_calls import ListCaller

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
    acknowledged: dict[str, float] = field(default_factory=dict)
    in_doubt: set[str] = field(default_factory=set)
    _number: int = 0

    async def write_on(self, caller: ListCaller, stopped: asyncio.Event, pause: float = 0.0) -> None:
        while not stopped.is_set():
            self._number += 1
            name = f"{self.prefix}{self._number:06}"
            entries = [{"entry": f"{name}x{index:02}.example"} for index in range(self.size)]
            try:
                answer = await caller.call("addEntries", listName=LIST, entries=entries)
            except NoAnswerError:
                answer = None
            if answer is not None and answer.status == 200:
                self.acknowledged[name] = time.monotonic()
                await asyncio.sleep(pause)
            else:
                assert answer is None or (answer.status == 503 and answer.error in self.expected), str(answer)
                self.in_doubt.add(name)
                await asyncio.sleep(RETRY_SECONDS)


def counts(text: str) -> dict[str, int]:
    """Return the numbers by name of what psql printed."""
    return {name: int(count) for name, _, count in (line.partition("|") for line in text.splitlines())}
