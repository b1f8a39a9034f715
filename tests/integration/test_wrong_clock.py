"""A guard whose clock is wrong deletes nothing: jobs that delete take the time from PostgreSQL and compare it."""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.events.maintenance import EventRetention
from mailwarden.history.maintenance import Retention, Rollups
from mailwarden.history.opening import open_history
from mailwarden.lists.expiry import Expiry
from mailwarden.lists.store import ListStore
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.vault import Vault
from mailwarden.senders.lookup import SenderHistory
from mailwarden.serving.spool import Spooled
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.store import ReportStore
from mailwarden.user_reports.training import Training
from mailwarden.weekly_report.model import Week
from mailwarden.weekly_report.store import MailStore
from tests.samples.finished import finished_request

ALL = Scope.deployment()
AHEAD = timedelta(days=500)
WRONG = r"clock is \d+ s (ahead of|behind) PostgreSQL's; nothing is deleted"


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def set_clock(monkeypatch: pytest.MonkeyPatch, off: timedelta) -> None:
    """Set this host's clock, for every module of the product that reads it; PostgreSQL's stays right."""

    class Clock(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + off

    for name, module in list(sys.modules.items()):
        if name.startswith("mailwarden.") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Clock)


async def test_history_stays(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_history(database)
    request = finished_request()
    await store.save(ALL, [request])
    await SenderHistory(store.senders).record([request])
    set_clock(monkeypatch, AHEAD)
    retention = Retention(store, days=90)
    await retention._run()
    assert await store.find(ALL, request.ggrid) == request
    for step in (
        retention.delete_days,
        retention.delete_for_tenants,
        retention.delete_senders,
        retention.delete_domains,
        retention.delete_threads,
        retention.delete_campaigns,
    ):
        with pytest.raises(CommandError, match=WRONG):
            await step()


async def test_a_clock_that_is_minutes_off_stops_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, timedelta(minutes=50))
    assert await Retention(open_history(database), days=90).delete_days() == 0


async def test_a_clock_that_is_behind_is_wrong_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, -timedelta(minutes=70))
    with pytest.raises(CommandError, match="behind PostgreSQL's"):
        await Retention(open_history(database), days=90).delete_days()


async def test_counters_stay(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_history(database)
    await store.save(ALL, [finished_request()])
    await store.update_rollups(ALL)
    before = await _rolled_to(database)
    set_clock(monkeypatch, AHEAD)
    await Rollups(store)._periodic_task.attempt()
    assert await _rolled_to(database) == before, "else no later message would be counted"


async def _rolled_to(database: Database) -> object:
    async with database.connection() as connection:
        return await connection.fetchval("SELECT rolled_to FROM history_rolled")


async def test_bodies_of_held_messages_stay(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault(FilesystemStore(tmp_path / "vault"), KeyRing.of(b"k" * 64))
    tenant = uuid4()
    address = await vault.put(tenant, Spooled.of(b"a body whose row is being written"))
    retention = QuarantineRetention(vault, RetentionStore(database), ReleaseStore(database), RetentionDays())
    set_clock(monkeypatch, AHEAD)
    with pytest.raises(CommandError, match=WRONG):
        await retention.find_orphans()
    with pytest.raises(CommandError, match=WRONG):
        await retention._run()
    assert await vault.has(tenant, address)


def _training(database: Database) -> Training:
    teacher, seal = object(), object()  # not used by `expire`
    return Training(ReportStore(database), teacher, seal, 365)  # type: ignore[arg-type]


_JOBS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "reports of users": lambda database: _training(database).expire(),
    "cases": lambda database: CaseStore(database).delete_old(ALL, datetime.now(UTC)),
    "events": lambda database: EventRetention(database, 30).delete_days(),
    "list entries": lambda database: Expiry(ListStore(database, database))._purge_now(),
    "digests": lambda database: DigestStore(database).prepare(ALL, datetime.now(UTC).date(), datetime.now(UTC)),
    "weekly reports": lambda database: MailStore(database).prepare(
        ALL, Week.before(datetime.now(UTC)), datetime.now(UTC), datetime.now(UTC)
    ),
}


@pytest.mark.parametrize("job", _JOBS)
async def test_a_job_that_deletes_stops(job: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await _JOBS[job](database)
    set_clock(monkeypatch, AHEAD)
    with pytest.raises(CommandError, match=WRONG):
        await _JOBS[job](database)
