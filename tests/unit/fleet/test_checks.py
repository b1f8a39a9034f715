"""The checks of the fleet test notice each kind of loss."""

import base64
import json
from collections import defaultdict
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from mailwarden.history.records import encode
from mailwarden.model.evidence import Evidence, Report, Status
from rig.caller import Answer
from tests.faults.delivery_check import Copy
from tests.faults.list_ledger import CHANGES, ENTRIES
from tests.faults.load import MALWARE, PLAIN, Load, Outcome
from tests.fleet.checks import Result, compare
from tests.fleet.loads import BATCH, FleetLoad
from tests.fleet.topology import Fleet
from tests.samples.finished import finished_request

ANALYZERS = ("structure", "message", "rspamd", "clamav")
NUMBER, DIGEST = 7, b"digest"


class Stored:
    """What the databases of a fleet have, as psql prints it."""

    def __init__(self) -> None:
        self.entries, self.changes = f"a01000001|{BATCH}", "a01000001|1"
        self.scanned, self.mailed = uuid4(), uuid4()
        self.rows = f"{self.scanned}|1\n{self.mailed}|1"
        self.status = Status.FINISHED
        self.answer = {"verdict": "clean", "decision": "deliver", "ggrid": str(self.scanned)}
        self.kind = PLAIN
        self.copies: dict[int, list[Copy]] = {NUMBER: [Copy("sink", DIGEST, self.mailed)]}
        self.twice = 0

    def execute(self, statement: str) -> str:
        if statement in (ENTRIES, CHANGES):
            return self.entries if statement == ENTRIES else self.changes
        if "FROM events" in statement:
            return str(self.twice)
        return self._clean() if "verdict = 'clean'" in statement else self.rows

    def _clean(self) -> str:
        reports = tuple(
            Report(name, True, self.status if name == "clamav" else Status.FINISHED, 1.0) for name in ANALYZERS
        )
        record = encode(finished_request(ggrid=self.scanned, evidence=Evidence(reports)))
        return f"{self.scanned}|{base64.b64encode(record).decode('ascii')}"

    def compare(self, dropped: int = 0) -> Result:
        answer = Answer(200, {}, json.dumps(self.answer).encode())
        load = SimpleNamespace(
            scans=Load([Outcome(self.kind, 0.0, 1.0, answer)], 1),
            lists=SimpleNamespace(acknowledged={"a01000001": 1.0}, in_doubt={"a01000002"}),
            mail=SimpleNamespace(accepted=frozenset({NUMBER}), digests={NUMBER: DIGEST}),
            sink=SimpleNamespace(copies=defaultdict(list, self.copies)),
        )
        return compare(cast("Fleet", self), cast("FleetLoad", load), {}, dropped)


def test_nothing_is_missing_where_all_is_stored() -> None:
    result = Stored().compare()
    assert (result.failures, result.lost) == ({}, 0)
    assert (result.scans, result.lists, result.mails, result.rows) == (1, 1, 1, 2)


@pytest.mark.parametrize(
    ("changes", "failure", "lost"),
    [
        ({"entries": ""}, "acknowledged list changes lost", 1),
        ({"entries": f"a01000001|{BATCH}\na01000002|2"}, "list changes by halves or twice", 0),
        ({"changes": "a01000001|2"}, "list changes by halves or twice", 0),
        ({"copies": {}}, "messages lost", 1),
        ({"copies": {NUMBER: [Copy("sink", b"other", UUID(int=1))]}}, "messages changed", None),
        ({"rows": ""}, "history rows lost", 2),
        ({"twice": 1}, "history rows or events twice", 0),
        ({"status": Status.FAILED}, "clean without a finished analysis", 0),
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


def test_dropped_rows_are_not_lost_as_far_as_guard_counted_them() -> None:
    stored = Stored()
    stored.rows = ""
    assert stored.compare(dropped=2).failures == {}
    assert stored.compare(dropped=1).lost == 1
