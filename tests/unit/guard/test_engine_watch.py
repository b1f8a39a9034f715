"""What an engine says of itself becomes its state: version, signatures and when those were made."""

import re
from datetime import UTC, datetime, timedelta

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.clamav import ClamavEngine, ClamavSettings, moment_of, read_version
from mailwarden.guard.engine_watch import EngineWatch, state_of
from mailwarden.model.evidence import FailureKind
from mailwarden.telemetry.metrics import Metrics

CLAMAV = ClamavEngine("clamav", ClamavSettings("tcp:127.0.0.1:1"))


async def test_clamd_reports_its_signatures_and_their_age():
    state = state_of(CLAMAV, read_version("ClamAV 1.4.3/27852/Sat Nov 14 09:35:12 2026"))
    assert (state.version, state.signatures) == ("ClamAV 1.4.3", "27852")
    assert state.signatures_made == datetime(2026, 11, 14, 9, 35, 12, tzinfo=UTC)
    assert state.up


async def test_clamd_without_a_database_of_its_own_has_a_version_alone():
    state = state_of(CLAMAV, read_version("ClamAV 1.4.3"))
    assert (state.version, state.signatures, state.signatures_made) == ("ClamAV 1.4.3", "", None)


def test_a_day_of_one_digit_and_nonsense_are_read():
    assert moment_of("Mon Nov  2 09:35:12 2026") == datetime(2026, 11, 2, 9, 35, 12, tzinfo=UTC)
    assert moment_of("yesterday") is None


async def test_an_engine_that_fails_has_no_version(monkeypatch):
    async def fail():
        raise EngineFailed(FailureKind.UNREACHABLE, "gone")

    monkeypatch.setattr(CLAMAV, "check", fail)
    watch = EngineWatch((CLAMAV,), Metrics())
    await watch.check()
    (state,) = watch.states
    assert (state.up, state.detail, state.version) == (False, "gone", "")


async def test_metrics_show_version_signatures_age_and_check_time(monkeypatch):
    made = datetime.now(UTC) - timedelta(days=2)

    async def answer():
        return read_version(f"ClamAV 1.4.3/27852/{made:%a %b %d %H:%M:%S %Y}")

    monkeypatch.setattr(CLAMAV, "check", answer)
    metrics = Metrics()
    watch = EngineWatch((CLAMAV,), metrics)
    assert 'mailwarden_engine_up{engine="clamav"} 0.0' in metrics.page().decode()
    assert "mailwarden_engine_signatures_age_seconds{" not in metrics.page().decode(), "unknown is absent, not young"
    await watch.check()
    page = metrics.page().decode()
    assert 'mailwarden_engine_up{engine="clamav"} 1.0' in page
    assert 'mailwarden_engine_info{engine="clamav",version="ClamAV 1.4.3"} 1.0' in page
    assert 'mailwarden_engine_check_seconds_count{engine="clamav"} 1.0' in page
    age = re.search(r'mailwarden_engine_signatures_age_seconds{engine="clamav"} (\S+)', page)
    assert age is not None
    assert abs(float(age[1]) - 2 * 86_400) < 60
