"""The checks of the fleet test notice each kind of loss."""

import json
from collections import defaultdict
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.model.evidence import Evidence, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from rig.caller import Answer
from tests.faults.delivery_check import Copy
from tests.faults.list_ledger import CHANGES, ENTRIES, Ledger
from tests.faults.load import MALWARE, PLAIN, Load, Outcome
from tests.fleet.checks import Result, compare
from tests.fleet.history import StoredRows
from tests.fleet.loads import BATCH, FleetLoad
from tests.fleet.topology import Fleet
from tests.samples.finished import finished_request

ANALYZERS = ("structure", "message", "rspamd", "clamav")
NUMBER, SPAM_NUMBER, DIGEST = 7, 8, b"digest"


class Stored:
    """What a fleet has: lists and events as psql prints them, and the rows of history."""

    def __init__(self) -> None:
        self.entries, self.changes = f"a01000001|{BATCH}", "a01000001|1\na01000003|2"
        self.scanned, self.mailed = uuid4(), uuid4()
        self.events = [self.scanned, self.mailed]
        self.missing: list[UUID] = []  # rows
        self.status, self.verdict = Status.FINISHED, Verdict.CLEAN
        self.answer = {"verdict": "clean", "decision": "deliver", "ggrid": str(self.scanned)}
        self.kind, self.number = PLAIN, NUMBER
        self.copies: list[Copy] = [Copy("sink", DIGEST, self.mailed)]
        self.twice = 0

    def execute(self, statement: str) -> str:
        if statement in (ENTRIES, CHANGES):
            return self.entries if statement == ENTRIES else self.changes
        return "\n".join(map(str, self.events)) if "DISTINCT subject" in statement else str(self.twice)

    def _row(self, ggrid: UUID) -> FinishedRequest:
        reports = tuple(
            Report(name, True, self.status if name == "clamav" else Status.FINISHED, 1.0) for name in ANALYZERS
        )
        row = finished_request(ggrid=ggrid, evidence=Evidence(reports))
        return msgspec.structs.replace(row, judgement=msgspec.structs.replace(row.judgement, verdict=self.verdict))

    def compare(self) -> Result:
        answer = Answer(200, {}, json.dumps(self.answer).encode())
        ledger = Ledger(BATCH, "a01", acknowledged={"a01000001": 1.0, "a01000003": 1.0}, in_doubt={"a01000002"})
        ledger.deleted.add("a01000003")
        load = SimpleNamespace(
            scans=Load([Outcome(self.kind, 0.0, 1.0, answer)], 1),
            lists=ledger,
            mail=SimpleNamespace(accepted=frozenset({self.number}), digests={self.number: DIGEST}),
            sink=SimpleNamespace(copies=defaultdict(list, {self.number: self.copies})),
        )
        rows = [self._row(ggrid) for ggrid in (self.scanned, self.mailed) if ggrid not in self.missing]
        return compare(cast("Fleet", self), cast("FleetLoad", load), {}, StoredRows(rows))


def test_nothing_is_missing_where_all_is_stored() -> None:
    result = Stored().compare()
    assert (result.failures, result.lost) == ({}, 0)
    assert (result.scans, result.lists, result.mails, result.rows) == (1, 3, 1, 2)


@pytest.mark.parametrize(
    ("changes", "failure", "lost"),
    [
        ({"entries": ""}, "acknowledged list changes lost", 1),
        ({"entries": f"a01000001|{BATCH}\na01000003|{BATCH}"}, "acknowledged list changes lost", 1),
        ({"entries": f"a01000001|{BATCH}\na01000002|2"}, "list changes partially applied or twice", 0),
        ({"changes": "a01000001|2"}, "list changes partially applied or twice", 0),
        ({"copies": []}, "messages lost", 1),
        ({"copies": [Copy("sink", b"other", UUID(int=1))]}, "messages changed", None),
        ({"copies": [Copy("sink", DIGEST, UUID(int=1))] * 2}, "messages delivered twice by one analysis", None),
        ({"number": SPAM_NUMBER}, "threats delivered", 0),
        ({"twice": 1}, "history rows or events twice", 0),
        ({"events": []}, "history rows without an event", 0),
        ({"status": Status.FAILED}, "clean without a finished analysis", 0),
        ({"verdict": Verdict.UNKNOWN}, "clean without a finished analysis", 0),
        ({"kind": MALWARE}, "answers that may not be", 0),
    ],
)
def test_each_loss_is_noticed(changes: dict[str, object], failure: str, lost: int | None) -> None:
    stored = Stored()
    for name, value in changes.items():
        setattr(stored, name, value)
    result = stored.compare()
    assert failure in result.failures
    assert lost is None or result.lost == lost


def test_a_row_that_is_not_stored_is_lost() -> None:
    stored = Stored()
    stored.missing = [stored.mailed]
    result = stored.compare()
    assert (result.lost, result.rows_lost) == (1, [str(stored.mailed)])
    assert "clean without a finished analysis" in result.failures  # it was delivered, and no row shows the analysis


def test_rows_that_guard_dropped_fail() -> None:
    assert "history rows dropped" in Result(rows_dropped=1).failures
