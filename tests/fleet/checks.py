"""What must hold after every schedule: nothing acknowledged is lost or stored twice, nothing unfinished is clean."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mailwarden.model.evidence import Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from rig.process import RigError
from tests.faults.delivery_check import Copy, read_quarantine
from tests.faults.guard_status import figure
from tests.faults.invariants import ALLOWED
from tests.faults.list_ledger import CHANGES, ENTRIES, counts
from tests.faults.load import Outcome
from tests.fleet.history import read_history
from tests.fleet.loads import BATCH, FleetLoad
from tests.fleet.namespaces import run
from tests.fleet.topology import Fleet
from tests.waiting import wait_until

DRAIN_SECONDS = 120.0
REFUSALS = {"overloaded", "engine_unavailable", "shutting_down", "storage_unavailable"}
_TWICE = "SELECT count(*) - count(DISTINCT (subject, tenant)) FROM events WHERE type = 'message.judged'"


@dataclass
class Result:
    """The counts of one schedule; every list and number under `failures` must be empty or zero."""

    scans: int = 0
    lists: int = 0
    mails: int = 0
    rows: int = 0
    lists_lost: list[str] = field(default_factory=list)
    lists_torn: list[str] = field(default_factory=list)
    mail_lost: list[int] = field(default_factory=list)
    mail_changed: list[int] = field(default_factory=list)
    rows_lost: list[str] = field(default_factory=list)
    rows_dropped: int = 0  # counted by guard, for lack of disk
    rows_doubled: int = 0
    rows_merged: int = 0  # written again by a repeated batch; ClickHouse merged them
    rows_differing: list[str] = field(default_factory=list)
    unfinished_clean: list[str] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    mail_repeated: int = 0

    @property
    def lost(self) -> int:
        return len(self.lists_lost) + len(self.mail_lost) + max(0, len(self.rows_lost) - self.rows_dropped)

    @property
    def failures(self) -> dict[str, object]:
        found: dict[str, object] = {
            "acknowledged list changes lost": self.lists_lost,
            "list changes by halves or twice": self.lists_torn,
            "messages lost": self.mail_lost,
            "messages changed": self.mail_changed,
            "history rows lost": self.rows_lost if len(self.rows_lost) > self.rows_dropped else [],
            "history rows or events twice": self.rows_doubled,
            "history rows that not every replica has": self.rows_differing,
            "clean without a finished analysis": self.unfinished_clean,
            "answers that may not be": self.wrong_answers,
        }
        return {name: value for name, value in found.items() if value}


def drain(fleet: Fleet) -> float:
    """Wait until Postfix has delivered everything and every journal is empty; return the seconds."""
    began = time.monotonic()
    postfix = fleet.postfix
    assert postfix is not None
    (mx,) = fleet.of_kind("mx")
    mx.host.run(postfix.flush)
    if not wait_until(lambda: mx.host.run(postfix.waiting) == 0, DRAIN_SECONDS, 0.5):
        waiting = mx.host.run(lambda: run("postqueue", "-c", str(postfix.configuration), "-j"))
        raise RigError(f"mail waits in Postfix's queue: {waiting[:4_000]}\n{postfix.log_tail()}")
    assert wait_until(lambda: not any(figures(fleet, "mailwarden_history_waiting")), DRAIN_SECONDS, 0.5), "rows wait"
    return time.monotonic() - began


def figures(fleet: Fleet, name: str) -> list[float]:
    """Read one figure of every guard."""
    parts = fleet.of_kind("guard")
    return [
        part.host.run(lambda guard=guard: asyncio.run(figure(guard, name)))  # type: ignore[misc]
        for part, guard in zip(parts, fleet.guards, strict=True)
    ]


def oldest_waiting(fleet: Fleet) -> float:
    """Return the age in seconds of the oldest row that waits in a journal."""
    return max(figures(fleet, "mailwarden_history_oldest_seconds"))


def check(fleet: Fleet, load: FleetLoad, since: datetime, dropped: int) -> Result:
    """Compare everything that was acknowledged since a moment with what is stored."""
    held = read_quarantine(fleet.primary_url, fleet.guards[0].folder, fleet.vault, fleet.root)
    result = Result(rows_dropped=dropped)
    _check_lists(fleet, load, result)
    _check_mail(load, held, result)
    _check_answers(load.scans.outcomes, result)
    stored = read_history(fleet, since)
    result.rows_merged, result.rows_differing = stored.copies, list(stored.differing)
    result.rows_doubled = stored.repeated + int(fleet.execute(_TWICE))
    _check_rows(stored.requests, load, held, result)
    return result


def _check_lists(fleet: Fleet, load: FleetLoad, result: Result) -> None:
    entries, changes = counts(fleet.execute(ENTRIES)), counts(fleet.execute(CHANGES))
    ledger = load.lists
    result.lists = len(ledger.acknowledged)
    result.lists_lost = [name for name in ledger.acknowledged if entries.get(name) != BATCH]
    torn = [name for name in ledger.in_doubt if entries.get(name, 0) not in (0, BATCH)]
    result.lists_torn = torn + [name for name, count in changes.items() if count > 1]


def _check_mail(load: FleetLoad, held: Mapping[int, Sequence[Copy]], result: Result) -> None:
    result.mails = len(load.mail.accepted)
    for number in load.mail.accepted:
        copies = [*load.sink.copies.get(number, ()), *held.get(number, ())]
        if not copies:
            result.mail_lost.append(number)
        if any(copy.digest != load.mail.digests[number] for copy in copies):
            result.mail_changed.append(number)
        result.mail_repeated += max(0, len(copies) - 1)


def _check_answers(outcomes: Sequence[Outcome], result: Result) -> None:
    result.scans = sum(outcome.status == 200 for outcome in outcomes)
    for outcome in outcomes:
        if outcome.answer is None:
            continue
        if outcome.status == 200:
            right = (outcome.verdict, outcome.decision) in ALLOWED[outcome.kind]
        else:
            right = outcome.status == 503 and outcome.answer.error in REFUSALS
        if not right:
            result.wrong_answers.append(str(outcome))


def _check_rows(
    stored: Sequence[FinishedRequest], load: FleetLoad, held: Mapping[int, Sequence[Copy]], result: Result
) -> None:
    answered = {outcome.ggrid for outcome in load.scans.outcomes if outcome.ggrid}
    mailed = {
        str(copy.ggrid)
        for number in load.mail.accepted
        for copy in (*load.sink.copies.get(number, ()), *held.get(number, ()))
    }
    result.rows = len(answered | mailed)
    result.rows_lost = sorted((answered | mailed) - {str(request.ggrid) for request in stored})
    for request in stored:
        if request.judgement.verdict is Verdict.CLEAN and not _is_finished(request):
            result.unfinished_clean.append(str(request.ggrid))


def _is_finished(request: FinishedRequest) -> bool:
    reports = request.evidence.reports
    finished = {report.analyzer for report in reports if report.status is Status.FINISHED}
    required = {report.analyzer for report in reports if report.required}
    return not required - finished and finished >= {"structure", "message", "rspamd", "clamav"}
