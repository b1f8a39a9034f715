"""What became of each message: at the sink, in quarantine or returned to its sender, how often, and byte for byte."""

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
from tests.acceptance.smtp import Sink
from tests.faults.mail_load import Failure, MailLoad, plainly
from tests.faults.mailbag import find_number
from tests.faults.mishaps import Happened

PAGE = 500
_GGRID = re.compile(rb"^X-Mailwarden-Ggrid: (\S{36})\r\n", re.MULTILINE)
_DEFERRED = re.compile(r"(\w{3} +\d+ [\d:]{8}) .*?: (\w+): to=<.*?status=deferred \((.*)\)$")
POSTFIX = "postfix killed"
SLACK = 1.0  # seconds: Postfix's log has no fractions
KILL_SLACK = 5.0


class Copy(NamedTuple):
    """One copy of a message, wherever it came to; the ggrid tells which analysis sent it there."""

    place: str  # sink or quarantine
    digest: bytes
    ggrid: UUID | None

    @property
    def moment(self) -> float:
        """Return when guard began to judge it."""
        made = moment_of(self.ggrid) if self.ggrid else None
        return made.timestamp() if made else 0.0


Copies = Mapping[int, Sequence[Copy]]


class Register(Sink):
    """A sink that keeps no message, but what tells it from others."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, list[Copy]] = defaultdict(list)
        self.returned: Counter[int] = Counter()

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        content: bytes = envelope.original_content
        number, begins = find_number(content)
        if not envelope.mail_from:  # Postfix tells the sender that it could not be delivered
            self.returned[number] += 1
        else:
            ggrid = _GGRID.search(content, 0, begins)
            told = UUID(ggrid[1].decode("ascii")) if ggrid else None
            self.copies[number].append(Copy("sink", _digest(content, begins), told))
        return "250 Taken"


def read_quarantine(url: str, folder: Path, store: Path, spool: Path) -> dict[int, list[Copy]]:
    """Take every held message out of the vault, and return what tells it from others."""
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
    """Return by Postfix's queue id when and why a message was put off."""
    found: dict[str, list[Failure]] = defaultdict(list)
    year = datetime.now().astimezone().year
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            status = _DEFERRED.match(line)
            if status is not None:
                moment = datetime.strptime(f"{year} {status[1]}", "%Y %b %d %H:%M:%S").astimezone()
                found[status[2]].append(Failure(moment.timestamp(), _shortly(status[3])))
    return found


def _shortly(told: str) -> str:
    """Return what Postfix noted of a try, without addresses, ids and what it concludes."""
    said = re.search(r"said: (.*)", told)
    return said[1] if said else re.sub(r" \S*\d\S*", "", told.partition(" -- ")[0])


@dataclass
class Account:
    """The sum of a run; `lost`, `changed` and `unexplained` are what must not be."""

    lost: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    rewritten: int = 0  # by Postfix, with guard or without
    doubled: Counter[str] = field(default_factory=Counter)  # what came more than once, by where to
    reasons: Counter[str] = field(default_factory=Counter)  # of these, by what its sender or Postfix was told


class Ledger:
    def __init__(
        self,
        load: MailLoad,
        sink: Register,
        held: Copies,
        *,
        alone: Mapping[int, bytes],
        deferrals: Mapping[str, Sequence[Failure]],
        happened: Sequence[Happened],
    ) -> None:
        self._load = load
        self._sink = sink
        self._held = held
        self._alone = alone
        self._deferrals = deferrals
        self._happened = happened

    def close(self) -> Account:
        """Look for every message that was accepted."""
        account = Account()
        for number in sorted(self._load.accepted):
            copies = [*self._sink.copies.get(number, ()), *self._held.get(number, ())]
            self._compare(account, number, copies)
            returned = self._sink.returned[number]
            if not copies and not returned:
                account.lost.append(number)
            elif len(copies) + returned > 1:
                self._explain(account, number, copies)
            account.places[_places(copies, returned)] += 1
        return account

    def _compare(self, account: Account, number: int, copies: Sequence[Copy]) -> None:
        for copy in copies:
            if copy.digest == self._load.digests[number]:
                continue
            if copy.digest == self._alone.get(number):
                account.rewritten += 1
            else:
                account.changed.append(number)

    def _explain(self, account: Account, number: int, copies: Sequence[Copy]) -> None:
        """Say which answer was lost: one analysis that came out twice went twice out of Postfix's queue."""
        places = Counter(copy.place for copy in copies)
        account.doubled[" and ".join(f"{place} {count}" for place, count in sorted(places.items()))] += 1
        analyses = sorted({copy.ggrid: copy for copy in copies}.values(), key=lambda copy: copy.moment)
        for _ in range(len(copies) - len(analyses)):
            told = self._killed(POSTFIX, analyses[0].moment, float("inf"))
            self._count(account, number, told and f"{told} before it had noted the sink's answer")
        for copy, again in pairwise(analyses):
            self._count(account, number, self._lost_answer(number, copy.moment, again.moment))

    def _lost_answer(self, number: int, since: float, until: float) -> str:
        """Return what whoever had sent the message was told instead of the answer, or who died with it."""
        failures = [
            *self._load.failures.get(number, ()),
            *self._deferrals.get(self._load.queue_ids.get(number, ""), ()),
        ]
        told = [each for each in failures if since - SLACK <= each.moment <= until + SLACK]
        if told:
            first = min(told, key=lambda each: each.moment)
            return f"the sender was told {plainly(first.told)}"
        killed = self._killed(POSTFIX, since, until)
        return killed and f"{killed} before it had noted guard's answer"

    def _killed(self, name: str, since: float, until: float) -> str:
        """Return the name where it happened between; a kill is noted a little before it is done."""
        moments = [each.moment for each in self._happened if each.name == name]
        return name if any(since - KILL_SLACK <= moment <= until for moment in moments) else ""

    def _count(self, account: Account, number: int, reason: str) -> None:
        if reason:
            account.reasons[reason] += 1
        else:
            account.unexplained.append(number)


def _places(copies: Sequence[Copy], returned: int) -> str:
    places = sorted({copy.place for copy in copies} | ({"returned"} if returned else set()))
    return " and ".join(places) or "nowhere"
