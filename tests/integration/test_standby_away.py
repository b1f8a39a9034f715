"""A change whose first attempt was cut off while it waited for the standby: its repeat waits as well.

PostgreSQL shows such a change, and a repeat that finds everything done writes nothing. Its commit would not wait.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg

from mailwarden.access.keys import ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.access.session_store import SessionStore
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.users import Position, Role
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse.ledger import AnnouncedRow, Ledger
from mailwarden.history.clickhouse.rows import encode_row
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryRow
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.change_log import ChangeLog
from mailwarden.lists.kinds import Entry
from mailwarden.lists.service import stamp_of
from mailwarden.lists.store import Changes, ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.user_reports.cases.model import CaseOutcome, NewCaseReport
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox.report_mail import ReportFormat
from mailwarden.user_reports.reports import Kind
from tests.integration.held_messages import finished
from tests.samples.accounts import Accounts
from tests.samples.finished import finished_request
from workshop.rig.engines import Engines
from workshop.rig.postgresql import Postgresql

ALL = Scope.deployment()
ADA = Actor("cli:ada")
LIST = find_list("url-block")
TIMEOUT = 2.0
VAULT = uuid4()

Change = Callable[[], Awaitable[object]]


@asynccontextmanager
async def standby_away(postgresql: Postgresql, url: str) -> AsyncIterator[None]:
    """Let commits wait for a standby that does not come."""
    postgresql.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
    postgresql.execute("SELECT pg_reload_conf()")
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(30):
            while await _commits(connection):  # until the checkpointer has read the setting
                await asyncio.sleep(0.05)
        yield
    finally:
        postgresql.execute("ALTER SYSTEM RESET synchronous_standby_names")
        postgresql.execute("SELECT pg_reload_conf()")
        await connection.close()


async def _commits(connection: asyncpg.Connection) -> bool:
    try:
        await connection.execute("SELECT pg_logical_emit_message(true, 'test', '')", timeout=1.0)
    except TimeoutError:
        return False
    return True


async def history_changes(database: Database, tenant: UUID) -> dict[str, Change]:
    store, ledger, request = open_history(database), Ledger(database), finished_request(tenant=tenant)
    row = encode_row(HistoryRow.of(request))
    assert row is not None
    return {
        "history": lambda: store.save(ALL, [request]),
        "history in ClickHouse": lambda: ledger.note(ALL, [AnnouncedRow(row, None)], None),
    }


async def list_changes(database: Database) -> dict[str, Change]:
    scope, stamp = ListScope(), stamp_of(ADA)
    lists, log = ListStore(database, database), ChangeLog(database)
    await lists.add(scope, LIST, Changes([Entry("a.example")], ['""'], [None]), stamp)
    await lists.add(scope, LIST, Changes([Entry("b.example")], ['""'], [None]), stamp)
    newest = (await log.newest(scope, LIST))[0].number
    return {
        "list deletion": lambda: lists.delete(scope, LIST, [Entry("a.example")], stamp),
        "list undo": lambda: log.undo(scope, LIST, newest, stamp),
    }


async def held_changes(database: Database, tenant: UUID) -> dict[str, Change]:
    request, store = finished(tenant), QuarantineStore(database)

    async def exists() -> bool:
        return True

    def hold() -> Awaitable[object]:
        return store.add(
            ALL, request, uid=uuid4(), vault=VAULT, address=b"a" * 32, days=RetentionDays(30), body_exists=exists
        )

    return {"held message": hold}


async def case_changes(database: Database, tenant: UUID, other: UUID) -> dict[str, Change]:
    """Return changes of two tenants: those of one wait for each other."""
    store, today = CaseStore(database), datetime.now(UTC).date()

    def report(owner: UUID, mail: bytes, subject: str) -> NewCaseReport:
        return NewCaseReport(
            uuid4(), owner, mail, 0, "bob@acme.example", verified=True, kind=Kind.PHISHING,
            format=ReportFormat.ATTACHED, message_id=f"{subject}@x.example", subject=subject, sender="eve@x.example",
        )  # fmt: skip

    closed = (await store.add(ALL, report(other, b"c" * 32, "closed"), today, 10)).case
    assert closed is not None
    return {
        "case report": lambda: store.add(ALL, report(tenant, b"d" * 32, "joined"), today, 10),
        "case report that was delivered": lambda: store.delivered(ALL, tenant, b"d" * 32),
        "closed case": lambda: store.close(ALL, closed, CaseOutcome.MALICIOUS, ADA),
    }


async def access_changes(database: Database, accounts: Accounts) -> dict[str, Change]:
    keys = ApiKeys(KeyStore(database), KeyRing.of(b"p" * 32))
    key, _ = await keys.create(ALL, NewKey("soar", frozenset({KeyScope.READ})), ADA)
    user = await accounts.create_user("Bob", Position(Role.DEPLOYMENT_ADMINISTRATOR))
    await accounts.create_user("Ann", Position(Role.DEPLOYMENT_ADMINISTRATOR))
    return {
        "revoked key": lambda: keys.revoke(ALL, key.key_id, ADA),
        "disabled user": lambda: accounts.registry.users.disable(ALL, user.uid, ADA),
        "ended sessions": lambda: SessionStore(database).end_all(user.uid),
    }


async def test_a_repeated_change_waits_for_the_standby(engines: Engines, database_url: str) -> None:
    database = Database(database_url, 16, TIMEOUT)
    accounts = Accounts(database)
    tenant, other = [(await TenantStore(database).create(ALL, name)).uid for name in ("acme", "club")]
    changes = {
        **await history_changes(database, tenant),
        **await list_changes(database),
        **await held_changes(database, tenant),
        **await case_changes(database, tenant, other),
        **await access_changes(database, accounts),
    }
    try:
        for change in changes.values():
            await change()
        async with standby_away(engines.postgresql, database_url):
            results = await asyncio.gather(*(change() for change in changes.values()), return_exceptions=True)
    finally:
        accounts.registry.passwords.close()
        await database.close()
    unexpected = {
        name: result
        for name, result in zip(changes, results, strict=True)
        if not isinstance(result, StorageUnavailable)
    }
    assert not unexpected, "acknowledged without the standby"
