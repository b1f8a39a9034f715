"""What must hold after every schedule: nothing acknowledged is lost or stored twice, nothing unfinished is clean."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mailwarden.model.evidence import Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from tests.faults.delivery_check import Copy, read_quarantine
from tests.faults.guard_status import figure
from tests.faults.invariants import ALLOWED
from tests.faults.list_ledger import CHANGES, ENTRIES, counts
from tests.faults.load import Outcome
from tests.faults.numbered_messages import is_threat
from tests.fleet.history import StoredRows, read_history
from tests.fleet.loads import FleetLoad
from tests.fleet.namespaces import run
from tests.fleet.topology import Fleet
from tests.waiting import wait_until
from workshop.rig.postfix import Postfix
from workshop.rig.process import RigError

DRAIN_SECONDS = 120.0
FLUSH_SECONDS = 2.0
COPY_SECONDS = 30.0  # until every guard has copied the lists
REFUSALS = {"overloaded", "engine_unavailable", "shutting_down", "storage_unavailable"}
_COPIED = "mailwarden_lists_entries"
_JUDGED = "SELECT DISTINCT subject FROM events WHERE type = 'message.scanned'"
_TWICE = "SELECT count(*) - count(DISTINCT (subject, tenant)) FROM events WHERE type = 'message.scanned'"


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
    rows_dropped: int = 0  # counted by guard
    events_missing: list[str] = field(default_factory=list)  # of rows
    rows_doubled: int = 0
    rows_merged: int = 0  # written again by a repeated batch; ClickHouse merged them
    rows_differing: list[str] = field(default_factory=list)
    unfinished_clean: list[str] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    undecided: int = 0  # analyses that a fault left unfinished
    refused: int = 0  # scans without an answer, or with an error
    threats_delivered: list[int] = field(default_factory=list)
    mail_doubled: list[int] = field(default_factory=list)  # delivered twice by one analysis
    mail_repeated: int = 0
    stale_guards: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return len(self.lists_lost) + len(self.mail_lost) + len(self.rows_lost)

    @property
    def failures(self) -> dict[str, object]:
        found: dict[str, object] = {
            "acknowledged list changes lost": self.lists_lost,
            "list changes partially applied or twice": self.lists_torn,
            "messages lost": self.mail_lost,
            "messages changed": self.mail_changed,
            "threats delivered": self.threats_delivered,
            "messages delivered twice by one analysis": self.mail_doubled,
            "history rows lost": self.rows_lost,
            "history rows dropped": self.rows_dropped,
            "history rows without an event": self.events_missing,
            "guards with other lists than the database": self.stale_guards,
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
    if not wait_until(lambda: mx.host.run(lambda: _is_empty(postfix)), DRAIN_SECONDS, FLUSH_SECONDS):
        waiting = mx.host.run(lambda: run("postqueue", "-c", str(postfix.configuration), "-j"))
        raise RigError(f"mail waits in Postfix's queue: {waiting[:4_000]}\n{postfix.log_tail()}")
    assert wait_until(lambda: not any(figures(fleet, "mailwarden_history_waiting")), DRAIN_SECONDS, 0.5), "rows wait"
    return time.monotonic() - began


def _is_empty(postfix: Postfix) -> bool:
    """Retry what is deferred, and return whether nothing waits.

    A flush skips a message that is being delivered, and Postfix may look at it again only minutes after its deferral.
    """
    postfix.flush()
    return postfix.waiting() == 0


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
    result = compare(fleet, load, held, read_history(fleet, since))
    result.rows_dropped, result.stale_guards = dropped, stale_guards(fleet)
    if not (result.scans and result.lists and result.mails):
        raise RigError(f"a load did nothing: {result}")
    return result


def compare(fleet: Fleet, load: FleetLoad, held: Mapping[int, Sequence[Copy]], stored: StoredRows) -> Result:
    """Compare what was acknowledged with lists, mail and history."""
    result = Result()
    _check_lists(fleet, load, result)
    _check_mail(load, held, result)
    _check_answers(load.scans.outcomes, result)
    result.rows_merged, result.rows_differing = stored.copies, list(stored.differing)
    result.rows_doubled = stored.repeated + int(fleet.execute(_TWICE))
    _check_rows(stored.requests, load, held, result)
    judged = set(fleet.execute(_JUDGED).splitlines())
    result.events_missing = sorted({str(request.ggrid) for request in stored.requests} - judged)
    return result


def check_again(fleet: Fleet, loads: Sequence[FleetLoad]) -> Result:
    """Compare lists and mail of all schedules once more: a later fault may lose what an earlier one left."""
    held = read_quarantine(fleet.primary_url, fleet.guards[0].folder, fleet.vault, fleet.root)
    result = Result()
    for load in loads:
        one = Result()
        _check_lists(fleet, load, one)
        _check_mail(load, held, one)
        result.lists_lost += one.lists_lost
        result.lists_torn += one.lists_torn
        result.mail_lost += one.mail_lost
        result.mail_changed += one.mail_changed
    return result


def stale_guards(fleet: Fleet) -> list[str]:
    """Return the guards whose copy of the lists does not become that of the database."""
    wanted = float(fleet.execute("SELECT count(*) FROM list_entries"))
    wait_until(lambda: all(figure == wanted for figure in figures(fleet, _COPIED)), COPY_SECONDS, 0.5)
    names = [part.name for part in fleet.of_kind("guard")]
    copied = zip(names, figures(fleet, _COPIED), strict=True)
    return [f"{name}: {count:.0f} entries of {wanted:.0f}" for name, count in copied if count != wanted]


def _check_lists(fleet: Fleet, load: FleetLoad, result: Result) -> None:
    entries, changes = counts(fleet.execute(ENTRIES)), counts(fleet.execute(CHANGES))
    result.lists = len(load.lists.acknowledged) + len(load.lists.deleted)
    result.lists_lost, result.lists_torn = load.lists.lost(entries), load.lists.torn(entries, changes)


def _check_mail(load: FleetLoad, held: Mapping[int, Sequence[Copy]], result: Result) -> None:
    result.mails = len(load.mail.accepted)
    for number in load.mail.accepted:
        delivered = load.sink.copies.get(number, ())
        copies = [*delivered, *held.get(number, ())]
        if not copies:
            result.mail_lost.append(number)
        if delivered and is_threat(number):
            result.threats_delivered.append(number)
        if len({copy.ggrid for copy in delivered}) < len(delivered):
            result.mail_doubled.append(number)
        if any(copy.digest != load.mail.digests[number] for copy in copies):
            result.mail_changed.append(number)
        result.mail_repeated += max(0, len(copies) - 1)


def _check_answers(outcomes: Sequence[Outcome], result: Result) -> None:
    result.scans = sum(outcome.status == 200 for outcome in outcomes)
    result.refused = len(outcomes) - result.scans
    result.undecided = sum(outcome.decision == "undecided" for outcome in outcomes)
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
    clean = {str(each.ggrid) for each in stored if each.judgement.verdict is Verdict.CLEAN}
    finished = {str(each.ggrid) for each in stored if _is_finished(each)}
    delivered = {str(copy.ggrid) for number in load.mail.accepted for copy in load.sink.copies.get(number, ())}
    answered_clean = {outcome.ggrid for outcome in load.scans.outcomes if outcome.verdict == Verdict.CLEAN}
    result.unfinished_clean = sorted((clean - finished) | ((answered_clean | delivered) - (clean & finished)))


def _is_finished(request: FinishedRequest) -> bool:
    reports = request.evidence.reports
    finished = {report.analyzer for report in reports if report.status is Status.FINISHED}
    required = {report.analyzer for report in reports if report.required}
    return not required - finished and finished >= {"structure", "message", "rspamd", "clamav"}
