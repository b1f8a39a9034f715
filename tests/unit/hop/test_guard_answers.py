"""What a guard's answer means to abby, and which guard is asked first."""

from typing import Any, cast
from uuid import UUID

import pytest

from mailwarden.errors import AnalysisTimeout, CoreError, CoreUnreachable, Overloaded, ScanningDisabled, ShuttingDown
from mailwarden.hop.client import worst_error
from mailwarden.hop.guards import Guard
from mailwarden.hop.https import result_in
from mailwarden.hop.records import GuardStatus
from mailwarden.hop.transport import Died, Refused

GGRID = UUID("0192f0c1-0000-7000-8000-000000000001")
GOOD = (
    b'{"ggrid":"0192f0c1-0000-7000-8000-000000000001","created":"2026-01-01T00:00:00Z",'
    b'"completed":"2026-01-01T00:00:01Z","decision":"deliver","verdict":"clean","tags":["auth.spf-pass"]}'
)


def test_a_result_of_the_right_message_is_taken():
    assert result_in(200, GOOD, GGRID) is GOOD


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"{}"),
        (200, b"[]"),
        (200, GOOD.replace(b"000001", b"000002", 1)),
        (200, GOOD[:-1]),
        (200, GOOD + b"\n"),
        (200, b" " + GOOD),
        (201, GOOD),
        (302, b"{}"),
        (400, b'{"error":"schema_violation"}'),
        (500, b'{"error":"internal_error"}'),
        (503, b'{"error":"storage_unavailable"}'),
        (503, b"busy"),
        (502, b"<html>bad gateway</html>"),
    ],
)
def test_nonsense_is_never_passed_on(status, raw):
    with pytest.raises(Died) as caught:
        result_in(status, raw, GGRID)
    assert isinstance(caught.value.error, CoreError)


@pytest.mark.parametrize("code", ["overloaded", "shutting_down", "scanning_disabled", "engine_unavailable"])
def test_a_refusal_keeps_its_code_and_its_pause(code):
    with pytest.raises(Refused) as caught:
        result_in(503, b'{"error":"%s"}' % code.encode(), GGRID, 3)
    assert (caught.value.error.code, caught.value.error.retry_after) == (code, 3)


def test_a_guard_out_of_time_is_an_analysis_timeout():
    with pytest.raises(AnalysisTimeout):
        result_in(504, b'{"error":"analysis_timeout"}', GGRID)


def test_the_most_useful_error_is_returned():
    away, dead, nonsense = CoreUnreachable("away"), CoreUnreachable("dead"), CoreError("nonsense")
    full, stopping, disabled = Overloaded("full"), ShuttingDown("stopping"), ScanningDisabled("disabled")
    assert worst_error([away, stopping, full], [nonsense]) is full
    assert worst_error([stopping, disabled], []) is disabled
    assert worst_error([away], [dead]) is dead
    assert worst_error([away, away], []) is away
    assert worst_error([], []).code == "core_unreachable"


def test_the_load_counts_requests_since_the_last_status():
    guard = Guard("https://guard.example:9785/", cast("Any", None))
    assert (guard.name, guard.usable, guard.load) == ("guard.example:9785", False, 0)
    guard.in_flight_when_asked, guard.in_flight = 2, 5
    guard.take_status(GuardStatus("g", "1", 6, 10, (), database_up=True, scanning_enabled=True))
    assert (guard.usable, guard.load) == (True, 0.9)
    guard.take_status(GuardStatus("g", "1", 2, 10, (), database_up=True, scanning_enabled=True))
    assert guard.load == pytest.approx(0.82)  # one status does not decide
    guard.take_status(None)
    guard.take_status(GuardStatus("g", "1", 3, 10, (), database_up=True, scanning_enabled=True))
    assert guard.load == pytest.approx(0.6)  # a guard that restarted has no past
