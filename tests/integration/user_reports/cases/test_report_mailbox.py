"""The poll of a report mailbox in Dovecot: leases, mails that wait, and failures between commit and move."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mailwarden.cli.certificates import make_certificates
from mailwarden.database.pool import Database
from mailwarden.errors import EngineUnavailable, StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.smtp.commands import Rejection
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.intake import NotStored
from mailwarden.user_reports.mailbox.imap_client import ImapClient, MailboxFailed
from mailwarden.user_reports.mailbox.polling import LEASE, WAIT, MailboxMetrics, ReportMailbox
from mailwarden.user_reports.mailbox.store import MailboxStore
from mailwarden.user_reports.settings import ReportImap
from tests.integration.user_reports.cases.case_setup import CaseSetup
from tests.samples import report_mails as mails
from workshop.rig.dovecot import Dovecot
from workshop.rig.folders import remove_folder, temporary_folder

ALL = Scope.deployment()
NOW = datetime(2026, 11, 18, 8, tzinfo=UTC)
UNCHECKED, BROKEN, DOWN, LIMITED, AUTOMATIC, NO_ENGINE = (f"mark-{number}".encode() for number in range(6))


class Intake:
    """Stores reports with the case service; marks in a mail make it fail as guard would."""

    def __init__(self, setup: CaseSetup) -> None:
        self._setup = setup
        self.taken = 0
        self.unchecked = True

    async def store_from_mailbox(self, raw: bytes, mailbox: ReportImap) -> NotStored | None:
        assert mailbox.address == mails.MAILBOX
        self.taken += 1
        if UNCHECKED in raw and self.unchecked:
            raise Rejection("451 4.7.1 not decided")
        if NO_ENGINE in raw:
            raise EngineUnavailable("ClamAV does not answer.")
        if BROKEN in raw:
            raise ValueError("broken")
        if DOWN in raw:
            raise StorageUnavailable("The database is down.")
        if LIMITED in raw:
            return NotStored.LIMITED
        if AUTOMATIC in raw:
            return NotStored.AUTOMATIC
        await self._setup.report_all(raw)
        return None


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def dovecot() -> Iterator[Dovecot]:
    folder = temporary_folder()
    server = Dovecot(folder / "dovecot", "reports", "secret")
    (folder / "password").write_text("secret\n")
    try:
        server.start()
        yield server
    finally:
        server.stop()
        remove_folder(folder)


class Poller:
    """One guard's job of the mailbox; `poll` runs it when the mailbox is due."""

    def __init__(self, dovecot: Dovecot, database: Database, intake: Intake, clock: Clock, **changes: object) -> None:
        settings = ReportImap(
            mails.MAILBOX, "127.0.0.1", "reports", "password", port=dovecot.port, tls="off", timeout=2_000
        )
        self.settings = replace(settings, **changes)
        self.store, self.clock, self.metrics = MailboxStore(database), clock, Metrics()
        folder: Path = dovecot.folder.parent
        self.job = ReportMailbox(
            self.settings, folder, self.store, intake, metrics=MailboxMetrics(self.metrics), clock=clock
        )

    async def poll(self) -> int:
        self.clock.now += timedelta(minutes=2)
        return await self.job.look()

    def counted(self, outcome: str) -> int:
        start = f'mailwarden_report_mailbox_messages_total{{outcome="{outcome}"}} '
        lines = self.metrics.page().decode().splitlines()
        return sum(int(float(line.removeprefix(start))) for line in lines if line.startswith(start))


def mail_of(mark: bytes = b"") -> bytes:
    return mails.head("report", f"X-Mark: {mark.decode()}") + uuid4().hex.encode() + b"\r\n"


async def test_each_mail_goes_to_its_folder(setup: CaseSetup, database: Database, dovecot: Dovecot) -> None:
    poller = Poller(dovecot, database, Intake(setup), Clock(), max_size=5_000)
    large = mails.head("large") + b"x" * 6_000 + b"\r\n"
    for raw in (mail_of(AUTOMATIC), mail_of(BROKEN), mails.attached(), mail_of(LIMITED), large, mail_of(UNCHECKED)):
        dovecot.append(raw)
    assert await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed", "Failed")] == [1, 2, 3]
    outcomes = ("stored", "ignored", "limited", "unreadable", "too_large", "waits")
    assert [poller.counted(outcome) for outcome in outcomes] == [1] * 6
    assert len(await setup.store.page(ALL)) == 1


async def test_one_guard_polls_at_a_time(setup: CaseSetup, database: Database, dovecot: Dovecot) -> None:
    clock, intake = Clock(), Intake(setup)
    first, second = (Poller(dovecot, database, intake, clock) for _ in range(2))
    dovecot.append(mails.attached())
    polled = await asyncio.gather(first.poll(), second.poll())
    assert (sorted(polled), intake.taken) == ([False, True], 1)
    assert not await first.job.look(), "it is not due again"
    holder = uuid4()
    assert await first.store.claim(ALL, first.settings.name, holder, clock.now + timedelta(hours=1), LEASE)
    clock.now += timedelta(hours=1)
    assert not await second.job.look(), "a guard holds the lease"
    clock.now += LEASE
    assert await second.job.look(), "the guard died, and its lease is over"
    await first.store.release(ALL, first.settings.name, holder)


async def test_a_report_that_was_not_moved_is_not_stored_twice(
    setup: CaseSetup, database: Database, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller = Poller(dovecot, database, Intake(setup), Clock())
    dovecot.append(mails.attached())

    def fail(*_: object) -> None:
        raise MailboxFailed("the connection broke")

    with monkeypatch.context() as broken:
        broken.setattr(ImapClient, "move", fail)
        await poller.poll()
    found = await poller.store.find(ALL, poller.settings.name)
    assert found is not None
    assert (found.failure, found.failing_since) == ("the connection broke", found.polled_at)
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [1, 0]
    await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [0, 1]
    [case] = await setup.store.page(ALL)
    assert case.reports == 1
    found = await poller.store.find(ALL, poller.settings.name)
    assert found is not None
    assert (found.failure, found.failing_since) == ("", None)


async def test_mails_that_wait_do_not_hold_up_others(setup: CaseSetup, database: Database, dovecot: Dovecot) -> None:
    intake = Intake(setup)
    poller = Poller(dovecot, database, intake, Clock(), max_messages=2)
    for raw in (mail_of(UNCHECKED), mail_of(UNCHECKED), mail_of(), mail_of()):
        dovecot.append(raw)
    for _ in range(2):
        await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [2, 2]
    intake.unchecked = False
    await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [0, 4]


async def test_new_mails_do_not_hold_up_mails_that_wait(setup: CaseSetup, database: Database, dovecot: Dovecot) -> None:
    intake = Intake(setup)
    poller = Poller(dovecot, database, intake, Clock())
    dovecot.append(mail_of(UNCHECKED))
    await poller.poll()
    intake.unchecked = False
    dovecot.append(mail_of())
    await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [0, 2]


async def test_a_mail_that_ends_a_poll_does_not_hold_up_others(
    setup: CaseSetup, database: Database, dovecot: Dovecot
) -> None:
    intake = Intake(setup)
    poller = Poller(dovecot, database, intake, Clock())
    for raw in (mail_of(DOWN), mail_of()):
        dovecot.append(raw)
    for _ in range(2):
        await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed")] == [1, 1]
    await poller.poll()
    assert intake.taken == 3, "the mail is tried again"


async def test_mails_that_the_server_does_not_list_are_counted_and_hold_up_no_other(
    setup: CaseSetup, database: Database, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ImapClient.listed
    monkeypatch.setattr(ImapClient, "listed", lambda self, *range_: [] if range_[0] == 1 else listed(self, *range_))
    poller = Poller(dovecot, database, Intake(setup), Clock(), max_messages=2)
    for _ in range(3):
        dovecot.append(mail_of())
    await poller.poll()
    assert (poller.counted("unlisted"), len(dovecot.mails("INBOX"))) == (2, 3)
    await poller.poll()
    assert (poller.counted("unlisted"), len(dovecot.mails("INBOX"))) == (2, 2)


async def test_a_crash_of_a_poll_is_recorded(
    setup: CaseSetup, database: Database, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller = Poller(dovecot, database, Intake(setup), Clock())

    def crash(_: ImapClient) -> None:
        raise ValueError("text of the server")

    monkeypatch.setattr(ImapClient, "prepare_folders", crash)
    assert await poller.poll()
    found = await poller.store.find(ALL, poller.settings.name)
    assert found is not None
    assert found.failure == "Internal error: ValueError."
    assert not await poller.job.look(), "the next poll waits its interval"


@pytest.mark.parametrize("mark", [UNCHECKED, NO_ENGINE], ids=["unchecked", "no engine"])
async def test_a_mail_that_waits_too_long_fails(
    setup: CaseSetup, database: Database, dovecot: Dovecot, mark: bytes
) -> None:
    clock = Clock()
    poller = Poller(dovecot, database, Intake(setup), clock)
    dovecot.append(mail_of(mark))
    await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Failed")] == [1, 0]
    clock.now += WAIT
    await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Failed")] == [0, 1]


async def test_an_outage_of_the_database_moves_nothing(setup: CaseSetup, database: Database, dovecot: Dovecot) -> None:
    poller = Poller(dovecot, database, Intake(setup), Clock())
    dovecot.append(mail_of(DOWN))
    assert await poller.poll()
    assert [len(dovecot.mails(name)) for name in ("INBOX", "Processed", "Failed")] == [1, 0, 0]
    found = await poller.store.find(ALL, poller.settings.name)
    assert found is not None
    assert found.failure == "No report can be stored now: The database is down."


@pytest.mark.parametrize("tls", ["implicit", "startTls"])
def test_a_session_is_opened_over_tls(tls: Literal["implicit", "startTls"]) -> None:
    folder = temporary_folder()
    make_certificates(folder / "tls", ["127.0.0.1"])
    (folder / "password").write_text("secret\n")
    files = {"certificate": str(folder / "tls" / "guard.crt"), "key": str(folder / "tls" / "guard.key")}
    server = Dovecot(folder / "dovecot", "reports", "secret", **files)
    port = server.tls_port if tls == "implicit" else server.port
    settings = ReportImap(mails.MAILBOX, "127.0.0.1", "reports", "password", port=port, tls=tls, ca="tls/ca.crt")
    client = ImapClient(settings, folder)
    try:
        server.start()
        assert client.open().count == 0
        client.close()
    finally:
        server.stop()
        remove_folder(folder)
