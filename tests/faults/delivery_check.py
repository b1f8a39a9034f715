"""Checks where each message ended (sink, quarantine or returned), how often, and that its bytes are unchanged."""

import asyncio
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.model.ggrid import moment_of
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import HeldFilter, HeldMessage, PageCursor
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.settings.shared import Quarantine
from tests.acceptance.smtp import HOST, Sink
from tests.faults.injected_faults import FaultEvent
from tests.faults.mail_load import Failure, MailLoad, plainly
from tests.faults.numbered_messages import find_number

PAGE = 500
_GGRID = re.compile(rb"^X-Mailwarden-Ggrid: (\S{36})\r\n", re.MULTILINE)
_DEFERRED = re.compile(r"(\w{3} +\d+ [\d:]{8}) .*?: (\w+): to=<.*?status=deferred \((.*)\)$")
POSTFIX = "postfix killed"
SLACK = 1.0  # seconds: Postfix's log has no fractions
KILL_SLACK = 5.0


class Copy(NamedTuple):
    """One copy of a message; the ggrid identifies the analysis that sent it."""

    place: str  # sink or quarantine
    digest: bytes
    ggrid: UUID | None

    @property
    def moment(self) -> float:
        """Return the time at which guard received it."""
        made = moment_of(self.ggrid) if self.ggrid else None
        return made.timestamp() if made else 0.0


Copies = Mapping[int, Sequence[Copy]]


class CopySink(Sink):
    """A sink that stores the digest of each message instead of its bytes."""

    def __init__(self, host: str = HOST) -> None:
        super().__init__(host)
        self.copies: dict[int, list[Copy]] = defaultdict(list)
        self.returned: Counter[int] = Counter()

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        content: bytes = envelope.original_content
        number, begins = find_number(content)
        if not envelope.mail_from:  # a bounce of Postfix to the sender
            self.returned[number] += 1
        else:
            ggrid = _GGRID.search(content, 0, begins)
            reported = UUID(ggrid[1].decode("ascii")) if ggrid else None
            self.copies[number].append(Copy("sink", _digest(content, begins), reported))
        return "250 Taken"


def read_quarantine(url: str, folder: Path, store: Path, spool: Path) -> dict[int, list[Copy]]:
    """Read every held message from the vault, and return its digests."""
    vault = open_vault(Quarantine(store=str(store)), folder, read_ring(folder / "secrets" / "contents", "contents.key"))
    return asyncio.run(_read_all(url, vault, spool))


async def _read_all(url: str, vault: Vault, spool: Path) -> dict[int, list[Copy]]:
    database = Database(url)
    copies: dict[int, list[Copy]] = defaultdict(list)
    after: PageCursor | None = None
    try:
        while page := await QuarantineStore(database).page(Scope.deployment(), HeldFilter(after=after), PAGE):
            for held in page:
                content = await _open(vault, held, spool)
                number, begins = find_number(content)
                copies[number].append(Copy("quarantine", _digest(content, begins), held.ggrid))
            after = PageCursor(page[-1].received, page[-1].uid)
    finally:
        await database.close()
    return copies


async def _open(vault: Vault, held: HeldMessage, spool: Path) -> bytes:
    assert held.address is not None, held
    body = await vault.get(held.tenant, held.address, spool)
    try:
        return body.data()
    finally:
        body.close()


def _digest(content: bytes, begins: int) -> bytes:
    return hashlib.sha256(memoryview(content)[begins:]).digest()


def read_deferrals(log: Path) -> dict[str, list[Failure]]:
    """Return the deferrals of each Postfix queue id."""
    found: dict[str, list[Failure]] = defaultdict(list)
    year = datetime.now().astimezone().year
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            status = _DEFERRED.match(line)
            if status is not None:
                moment = datetime.strptime(f"{year} {status[1]}", "%Y %b %d %H:%M:%S").astimezone()
                found[status[2]].append(Failure(moment.timestamp(), _shortly(status[3])))
    return found


def _shortly(reported: str) -> str:
    """Return the reason that Postfix logged, without addresses and ids."""
    said = re.search(r"said: (.*)", reported)
    return said[1] if said else re.sub(r" \S*\d\S*", "", reported.partition(" -- ")[0])


@dataclass
class DeliveryTotals:
    """The result of a run; `lost`, `changed` and `unexplained` must be empty."""

    lost: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    rewritten: int = 0  # by Postfix, with guard or without
    doubled: Counter[str] = field(default_factory=Counter)  # messages with several copies, by destination
    reasons: Counter[str] = field(default_factory=Counter)  # reasons of these copies


class DeliveryCheck:
    def __init__(
        self,
        load: MailLoad,
        sink: CopySink,
        held: Copies,
        *,
        alone: Mapping[int, bytes],
        deferrals: Mapping[str, Sequence[Failure]],
        injected: Sequence[FaultEvent],
    ) -> None:
        self._load = load
        self._sink = sink
        self._held = held
        self._alone = alone
        self._deferrals = deferrals
        self._injected = injected

    def close(self) -> DeliveryTotals:
        """Check every accepted message."""
        totals = DeliveryTotals()
        for number in sorted(self._load.accepted):
            copies = [*self._sink.copies.get(number, ()), *self._held.get(number, ())]
            self._compare(totals, number, copies)
            returned = self._sink.returned[number]
            if not copies and not returned:
                totals.lost.append(number)
            elif len(copies) + returned > 1:
                self._explain(totals, number, copies)
            totals.places[_places(copies, returned)] += 1
        return totals

    def _compare(self, totals: DeliveryTotals, number: int, copies: Sequence[Copy]) -> None:
        for copy in copies:
            if copy.digest == self._load.digests[number]:
                continue
            if copy.digest == self._alone.get(number):
                totals.rewritten += 1
            else:
                totals.changed.append(number)

    def _explain(self, totals: DeliveryTotals, number: int, copies: Sequence[Copy]) -> None:
        """Find the lost reply: one analysis with two copies left Postfix's queue twice."""
        places = Counter(copy.place for copy in copies)
        totals.doubled[" and ".join(f"{place} {count}" for place, count in sorted(places.items()))] += 1
        analyses = sorted({copy.ggrid: copy for copy in copies}.values(), key=lambda copy: copy.moment)
        for _ in range(len(copies) - len(analyses)):
            reported = self._killed(POSTFIX, analyses[0].moment, float("inf"))
            self._count(totals, number, reported and f"{reported} before it had noted the sink's answer")
        for copy, again in pairwise(analyses):
            self._count(totals, number, self._lost_answer(number, copy.moment, again.moment))

    def _lost_answer(self, number: int, since: float, until: float) -> str:
        """Return the error that the client got instead of the reply, or the killed server."""
        failures = [
            *self._load.failures.get(number, ()),
            *self._deferrals.get(self._load.queue_ids.get(number, ""), ()),
        ]
        reported = [each for each in failures if since - SLACK <= each.moment <= until + SLACK]
        if reported:
            first = min(reported, key=lambda each: each.moment)
            return f"the sender was told {plainly(first.reported)}"
        killed = self._killed(POSTFIX, since, until)
        return killed and f"{killed} before it had noted guard's answer"

    def _killed(self, name: str, since: float, until: float) -> str:
        """Return the name of a fault in this interval; a kill is recorded shortly before it happens."""
        moments = [each.moment for each in self._injected if each.name == name]
        return name if any(since - KILL_SLACK <= moment <= until for moment in moments) else ""

    def _count(self, totals: DeliveryTotals, number: int, reason: str) -> None:
        if reason:
            totals.reasons[reason] += 1
        else:
            totals.unexplained.append(number)


def _places(copies: Sequence[Copy], returned: int) -> str:
    places = sorted({copy.place for copy in copies} | ({"returned"} if returned else set()))
    return " and ".join(places) or "nowhere"
