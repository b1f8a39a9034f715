"""Moves a tenant from one cell to another while it is in use.

The copy is complete before the switch, and the databases of both cells have the version of the tenant's place. Changes
of the tenant are rejected for the short time in which the last ones are copied; a lock that ends with the connection
rejects them, so that a move that is killed stops nothing. Only from the state `leaving` on the move must be finished:
the other cell has all data then, and the directory decides.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.cells import senders, tables
from mailwarden.cells.bodies import BodyCopies
from mailwarden.cells.history import HistoryPlace, MovedHistory
from mailwarden.cells.places import (
    LocalPlace,
    are_older_finished,
    connect,
    count_releases,
    exclude_moves,
    exclude_writers,
    lock_place,
    next_transaction,
    read_place,
    set_place,
)
from mailwarden.cells.remainder import (
    copy_counts,
    copy_history,
    different,
    move_history,
    wipe,
    wipe_active,
    wipe_rest,
    wipe_senders,
)
from mailwarden.cells.shared_access import check_shared, keep_common_codes
from mailwarden.cells.snapshot import Place
from mailwarden.cells.store import DirectoryStore
from mailwarden.database.pool import confirm_earlier
from mailwarden.errors import CommandError
from mailwarden.events.reader import cursor_of
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.model.scope import Actor
from mailwarden.model.tenant import TenantState
from mailwarden.quarantine.ownership import check_owner, read_deployment
from mailwarden.quarantine.vault import Vault
from mailwarden.telemetry.periodic_task import end_tasks

OLDER_SECONDS = 120.0  # for transactions that began before the move
DRAIN_SECONDS = 60.0  # for releases that a guard has begun
FREEZE_TRIES = 5
FREEZE_WAIT = "4s"  # for writes in flight
IDLE = "60s"  # a move that hangs lets writers continue: the last copy must end within this time
SETTLE_SECONDS = 5.0  # until each abby of the old cell knows of the switch, and has forgotten the tenant's keys
POLL = 0.1
PING_SECONDS = 30.0
_TENANT = "SELECT name, is_default FROM tenants WHERE uid = $1"
_MIGRATIONS = "SELECT array_agg(name ORDER BY name) FROM applied_migrations"
_SALT = "SELECT salt FROM relationship_salt"
_HAS_TENANT = "SELECT EXISTS (SELECT FROM tenants WHERE uid = $1)"
_NAME_TAKEN = "SELECT name FROM tenants WHERE lower(name) = lower($2) AND uid <> $1"
_DOMAIN_TAKEN = (
    "SELECT domain FROM tenant_domains WHERE domain = ANY ($2::text[]) AND tenant <> $1 ORDER BY domain LIMIT 1"
)
_USERS = "SELECT uid, lower(name) AS name FROM people WHERE $1 = ANY (tenants)"
_USER_TAKEN = """
SELECT people.name FROM people JOIN unnest($1::uuid[], $2::text[]) AS given (uid, name)
ON lower(people.name) = given.name AND people.uid <> given.uid LIMIT 1
"""
_DOMAINS = "SELECT coalesce(array_agg(domain ORDER BY domain), '{}') FROM tenant_domains WHERE tenant = $1"
_KEYS = "SELECT coalesce(array_agg(key_id), '{}') FROM api_keys WHERE tenants = ARRAY[$1]::uuid[]"
_OTHER_VAULTS = "SELECT count(*) FROM quarantine WHERE tenant = $1 AND address IS NOT NULL AND vault <> $2"
_KEEP_BODIES = "DELETE FROM quarantine_leavings WHERE tenant = $1"
_XMIN = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
_DROP_DOMAINS = "DELETE FROM tenant_domains WHERE tenant = $1"
_CURSOR = "SELECT settled_events()"
_AUDIT = "SELECT record_deed($1, $2, $3, $4, NULL, '', $5::text::jsonb)"
_TENANT_ROWS = tables.Rows(
    "tenants",
    "tenants.uid = $1::uuid",
    {"is_default": "false"},
    """(uid) DO UPDATE SET name = EXCLUDED.name, profile = EXCLUDED.profile, retention_days = EXCLUDED.retention_days,
    weights = EXCLUDED.weights, quarantine_days = EXCLUDED.quarantine_days,
    quarantine_digest = EXCLUDED.quarantine_digest""",
)
_DOMAIN_ROWS = tables.Rows("tenant_domains")

LOST = (asyncpg.PostgresConnectionError, asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.InterfaceError, OSError)

Report = Callable[[str], None]


class CellAccess(Struct, frozen=True):
    """A cell, as the command reaches it: its database, its vault, and ClickHouse if it has its history there."""

    name: str
    url: str
    vault: Vault
    spool: Path
    clickhouse: Clickhouse | None = None


class Moved(Struct, frozen=True):
    """The figures of a move; `pause` is None if an earlier run has switched the tenant."""

    pause: float | None
    held: int
    history: int


class _Copied(Struct, frozen=True):
    """The state of a copy in advance: `since` is the first transaction it may lack, `mark` the last look at senders."""

    since: str
    mark: senders.SenderMark | None = None

    @property
    def senders_since(self) -> str:
        return self.since if self.mark is None else self.mark.since


class TenantMove:
    def __init__(
        self, source: CellAccess, target: CellAccess, directory: DirectoryStore, tenant: UUID, report: Report
    ) -> None:
        self._source = source
        self._target = target
        self._directory = directory
        self._tenant = tenant
        self._report = report
        self._bodies = BodyCopies(tenant, source.vault, target.vault, spool=source.spool, report=report)
        old, new = (HistoryPlace(each.url, each.clickhouse) for each in (source, target))
        self._history = MovedHistory(old, new, tenant, report)
        self._locks: Sequence[asyncpg.Connection] = ()
        self._asking = asyncio.Lock()

    async def run(self, actor: Actor) -> Moved:
        """Move the tenant, or continue a move that was interrupted at any step."""
        async with self._alone() as (a, b):
            place, pause = await read_place(a, self._tenant), None
            if place.state in (TenantState.HERE, TenantState.DRAINING):
                await self._check(a, b, place)
                pause = await self._copy_and_switch(a, b, place)
            elif place.state is TenantState.LEAVING:
                self._report("continuing: the other cell has the whole copy")
                await self._switch(a, b, place)
            elif place.state is TenantState.MOVED:
                await self._confirm(a, b, place)
            else:
                raise CommandError(f"The tenant is arriving here. Run the move in the cell `{place.cell}`.")
            await self._bodies.restore(b)
            await asyncio.sleep(SETTLE_SECONDS)  # the old cell still reads what it has
            await self._clean(a, await read_place(a, self._tenant), actor, pause)
            return Moved(pause, len(self._bodies), await self._copy_history(a, b))

    async def finish(self) -> int:
        """Let late rows of history follow, and remove the rest of the tenant from the old cell; return their number."""
        async with self._alone() as (a, b):
            place = await read_place(a, self._tenant)
            if place.state is not TenantState.MOVED:
                raise CommandError("The tenant has not moved away from this cell. Run the move first.")
            await self._confirm(a, b, place)
            if self._history.is_by_keys:
                number = await self._history.delete(place, self._check_alone)
            else:
                number = await move_history(a, b, self._tenant, place, self._report)
            async with self._connected() as (c, d):
                await wipe_rest(c, d, self._tenant, place)
            return number

    async def _copy_history(self, a: asyncpg.Connection, b: asyncpg.Connection) -> int:
        if not self._history.is_by_keys:
            return await copy_history(a, b, self._tenant, self._report)
        number = await self._history.copy()
        async with self._connected() as (c, d):
            await copy_counts(c, d, self._tenant)
        return number

    async def abort(self) -> None:
        """Keep the tenant in the old cell, if the directory was not switched yet."""
        async with self._alone() as (a, b):
            place = await read_place(a, self._tenant)
            if place.state in (TenantState.HERE, TenantState.DRAINING):
                if await self._directory.place(self._tenant) not in (None, Place(self._source.name, place.version)):
                    raise CommandError("The directory has another place of the tenant: see `mailwarden cells show`.")
                await self._set(a, place, TenantState.HERE, place.version)
                await self._remove_copy(b, place.version)
                return
            if place.state is not TenantState.LEAVING:
                raise CommandError("The tenant has moved. Move it back with a move in the other cell.")
            # The version of the aborted move is never used again: it would not be clear whose it is.
            before, after = Place(self._source.name, place.version - 1), Place(self._source.name, place.version + 1)
            domains, keys = await _names(a, self._tenant)
            if not await self._directory.switch(self._tenant, before, after, domains=domains, keys=keys):
                raise CommandError("The directory has the tenant in the other cell. Run the move again to finish it.")
            await self._set(a, place, TenantState.HERE, after.version)
            await self._remove_copy(b, after.version)

    async def _remove_copy(self, b: asyncpg.Connection, version: int) -> None:
        """Remove the copy in the other cell, which never got the tenant; it forwards to this one."""
        there = await read_place(b, self._tenant)
        if there.state is not TenantState.ARRIVING or there.cell != self._source.name or there.version > version + 1:
            return
        async with b.transaction():
            await b.execute(tables.PREPARE, str(self._tenant))
            await lock_place(b, self._tenant, there)
            await wipe(b, self._tenant)
            await wipe_senders(b, self._tenant)
            await b.execute(_DROP_DOMAINS, self._tenant)
            await set_place(b, self._tenant, there, LocalPlace(TenantState.MOVED, version, there.cell, stored=True))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.Connection]]:
        """Connect to both cells; no other command moves the tenant to or from one of them meanwhile."""
        async with AsyncExitStack() as stack:
            a, b, *locks = [
                await stack.enter_async_context(connect(each))
                for each in (self._source.url, self._target.url, self._source.url, self._target.url)
            ]
            for lock in locks:
                await stack.enter_async_context(lock.transaction())
                await lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                if not await exclude_moves(lock, self._tenant):
                    raise CommandError("Another move of this tenant is running.")
            self._locks = locks
            pings = asyncio.create_task(self._ping_locks(), name="locks of a move")
            stack.push_async_callback(end_tasks, pings)
            yield a, b

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.Connection]]:
        """Connect to both cells again: a proxy may have cut connections that had nothing to do for long."""
        async with connect(self._source.url) as a, connect(self._target.url) as b:
            yield a, b

    async def _ping_locks(self) -> None:
        """Keep a proxy from cutting the connections that keep other moves away; `_check_alone` notices if it did."""
        with suppress(*LOST):
            while True:
                await asyncio.sleep(PING_SECONDS)
                await self._check_alone()

    async def _check_alone(self) -> None:
        """Raise if a connection that keeps other moves away was cut."""
        async with self._asking:
            for lock in self._locks:
                await lock.execute("SELECT 1")

    async def _check(self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace) -> None:
        """Raise if the tenant cannot be moved; nothing has changed then."""
        tenant = await a.fetchrow(_TENANT, self._tenant)
        if tenant is None:
            raise CommandError(f"The cell `{self._source.name}` has no tenant {self._tenant}.")
        if tenant["is_default"]:
            raise CommandError("The default tenant stays in its cell: it has the recipients of no other tenant.")
        newest = different(await a.fetchval(_MIGRATIONS), await b.fetchval(_MIGRATIONS))
        if newest:
            raise CommandError(f"Only one cell has the migration {newest}. Install the same version in both cells.")
        listed = await self._directory.place(self._tenant)
        if listed is not None and listed != Place(self._source.name, place.version):
            raise CommandError(
                f"The directory has the tenant in the cell `{listed.cell}` with version {listed.version}, and this "
                f"cell has version {place.version}. Nothing was changed. If the directory or this database was "
                "restored from a backup, wait until abby of the right cell has written its version."
            )
        await self._check_target(b, place)
        name, domains = str(tenant["name"]), await a.fetchval(_DOMAINS, self._tenant)
        if taken := await b.fetchval(_NAME_TAKEN, self._tenant, name):
            raise CommandError(f"The cell `{self._target.name}` has another tenant named `{taken}`. Rename one.")
        if taken := await b.fetchval(_DOMAIN_TAKEN, self._tenant, domains):
            raise CommandError(f"The domain `{taken}` belongs to a tenant of the cell `{self._target.name}`.")
        users = await a.fetch(_USERS, self._tenant)
        given = [row["uid"] for row in users], [row["name"] for row in users]
        if taken := await b.fetchval(_USER_TAKEN, *given):
            raise CommandError(f"The cell `{self._target.name}` has another user named `{taken}`. Rename one.")
        if others := await a.fetchval(_OTHER_VAULTS, self._tenant, await self._source.vault.uid()):
            raise CommandError(f"{others} held messages are in other vaults of this cell. Use one vault first.")
        await self._check_vaults(a, b)
        await self._history.check()
        await check_shared(a, b, self._tenant, self._target.name)

    async def _check_vaults(self, a: asyncpg.Connection, b: asyncpg.Connection) -> None:
        """Raise if a cell could remove the tenant's held messages from the vault of the other."""
        shared = await self._source.vault.uid()
        if shared == await self._target.vault.uid():
            raise CommandError(
                f"Both cells use the vault {shared}: the old cell would remove the held messages of the tenant. Give "
                "each cell a vault of its own (quarantine.store)."
            )
        await check_owner(self._source.vault, await read_deployment(a))
        await check_owner(self._target.vault, await read_deployment(b))

    async def _check_target(self, b: asyncpg.Connection, place: LocalPlace) -> None:
        there = await read_place(b, self._tenant)
        if not there.stored and await b.fetchval(_HAS_TENANT, self._tenant):
            raise CommandError(f"The cell `{self._target.name}` has a tenant with this UUID that was never moved.")
        if not there.stored:
            return
        ours = there.state is TenantState.ARRIVING and there.cell == self._source.name
        if there.version > place.version + (1 if ours else 0) or not (ours or there.state is TenantState.MOVED):
            raise CommandError(
                f"The cell `{self._target.name}` has the tenant with version {there.version} ({there.state}), which "
                f"is newer than version {place.version} of this cell. Nothing was changed."
            )

    async def _copy_and_switch(self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace) -> float:
        """Copy what can be copied in advance, then the rest without writers, and switch; return the pause."""
        place = await self._announce(a, place)
        since = await self._copy_in_advance(a, b, place)
        place, copied = await self._drain(a, place), _Copied(since)
        for attempt in range(1, FREEZE_TRIES + 1):
            copied = _Copied(since, await self._copy_sender_changes(a, b, place, copied.senders_since))
            began = time.monotonic()
            try:
                leaving = await self._freeze(a, b, place, copied)
            except asyncpg.LockNotAvailableError:
                self._report(f"writes in flight, attempt {attempt} of {FREEZE_TRIES}")
            except LOST as error:
                self._report(f"the lock was lost ({error}), attempt {attempt} of {FREEZE_TRIES}")
                # Only the answer to the commit may have been lost.
                leaving = await read_place(a, self._tenant)
                if leaving.state is TenantState.LEAVING:
                    await self._switch(a, b, leaving)
                    return time.monotonic() - began
            else:
                await self._switch(a, b, leaving)
                return time.monotonic() - began
            await asyncio.sleep(1.0)
        raise CommandError(
            f"Writes of this tenant took too long, or its last copy took more than {IDLE}. Nothing was switched; run "
            "the move again, at a quieter time."
        )

    async def _freeze(
        self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace, copied: _Copied
    ) -> LocalPlace:
        """Copy the rest without writers, and accept no more; the transaction that locks them out also stores that.

        If the lock is lost, the place cannot be stored, and what writers have changed since is copied again.
        """
        async with connect(self._source.url) as frozen, frozen.transaction():
            await frozen.execute(f"SET LOCAL lock_timeout = '{FREEZE_WAIT}'")
            await frozen.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE}'")
            await exclude_writers(frozen, self._tenant)
            await self._copy_rest(a, b, place, copied)
            await self._check_alone()
            return await self._set(frozen, place, TenantState.LEAVING, place.version + 1)

    async def _announce(self, a: asyncpg.Connection, place: LocalPlace) -> LocalPlace:
        """Store the place, and wait for writers that have not seen it: from then on all share the lock."""
        new = LocalPlace(TenantState.HERE, place.version, self._target.name, stored=True)
        if not await set_place(a, self._tenant, place, new):
            raise CommandError("The place of the tenant has just been changed by another command. Run it again.")
        transaction, end = await next_transaction(a), time.monotonic() + OLDER_SECONDS
        while not await are_older_finished(a, transaction):
            if time.monotonic() > end:
                raise CommandError("A transaction of this database has been open for minutes. Nothing was changed.")
            await asyncio.sleep(POLL)
        return new

    async def _copy_in_advance(self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace) -> str:
        """Copy settings, lists, sender history and held bytes; return the first transaction that may be missing."""
        there = await read_place(b, self._tenant)
        arriving = LocalPlace(TenantState.ARRIVING, place.version + 1, self._source.name, stored=True)
        if not await set_place(b, self._tenant, there, arriving):
            raise CommandError(f"The place of the tenant in the cell `{self._target.name}` has just changed.")
        async with a.transaction(isolation="repeatable_read", readonly=True), b.transaction():
            for connection in (a, b):
                await connection.execute(tables.PREPARE, str(self._tenant))
            since = str(await a.fetchval(_XMIN))
            await lock_place(b, self._tenant, arriving)
            await wipe(b, self._tenant)
            await b.execute(_KEEP_BODIES, self._tenant)
            await self._copy_settings(a, b)
            entries = await tables.copy_lists(a, b, self._tenant)
            self._report(f"lists: {entries:,} entries")
        await self._copy_senders(a, b)
        await self._bodies.copy(a)
        self._report(f"held messages: {len(self._bodies):,} bodies")
        return since

    async def _copy_senders(self, a: asyncpg.Connection, b: asyncpg.Connection) -> None:
        if not await _same_salt(a, b):
            self._report("sender history: not copied, the salts of the cells differ (`mailwarden cells join`)")
            return
        async with b.transaction():
            await b.execute(tables.PREPARE, str(self._tenant))
            await wipe_senders(b, self._tenant)
            pairs = await tables.copy_rows(a, b, senders.SENDERS, [self._tenant])
            await tables.copy_rows(a, b, senders.THREADS, [self._tenant])
        self._report(f"sender history: {pairs:,} pairs")

    async def _copy_sender_changes(
        self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace, since: str
    ) -> senders.SenderMark | None:
        """Copy the changes of sender history, just before changes pause; None if it is not copied."""
        if not await _same_salt(a, b):
            return None
        async with self._copying(a, b, place):
            return await senders.copy_changes(a, b, self._tenant, since)

    @asynccontextmanager
    async def _copying(self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace) -> AsyncIterator[None]:
        """Read the old cell in one snapshot, and write to the new one, in which the tenant must be arriving."""
        arriving = LocalPlace(TenantState.ARRIVING, place.version + 1, self._source.name, stored=True)
        async with a.transaction(isolation="repeatable_read", readonly=True), b.transaction():
            for connection in (a, b):
                await connection.execute(tables.PREPARE, str(self._tenant))
            await lock_place(b, self._tenant, arriving)
            yield

    async def _copy_settings(self, a: asyncpg.Connection, b: asyncpg.Connection) -> None:
        await tables.copy_rows(a, b, _TENANT_ROWS, [self._tenant])
        await b.execute(_DROP_DOMAINS, self._tenant)
        await tables.copy_rows(a, b, _DOMAIN_ROWS, [self._tenant])

    async def _drain(self, a: asyncpg.Connection, place: LocalPlace) -> LocalPlace:
        """Let guards begin no release, and wait for those that they have begun: none is done twice."""
        draining = await self._set(a, place, TenantState.DRAINING, place.version, seconds=2 * DRAIN_SECONDS)
        end = time.monotonic() + DRAIN_SECONDS
        while number := await count_releases(a, self._tenant):
            if time.monotonic() > end:
                await self._set(a, draining, TenantState.HERE, place.version)
                raise CommandError(f"A guard has been releasing {number} messages for a minute. Run the move again.")
            await asyncio.sleep(POLL)
        return draining

    async def _copy_rest(
        self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace, copied: _Copied
    ) -> None:
        """Copy all that changed and all that background jobs act on; no writer is active."""
        if await count_releases(a, self._tenant):
            raise CommandError("A guard has just begun a release. Nothing was switched; run the move again.")
        await self._bodies.copy(a)
        vault = await self._target.vault.uid()
        async with self._copying(a, b, place):
            await wipe_active(b, self._tenant)  # of an attempt before
            await check_shared(a, b, self._tenant, self._target.name)
            await self._copy_settings(a, b)
            await tables.copy_list_changes(a, b, self._tenant, copied.since)
            if copied.mark is not None and await _same_salt(a, b):
                await senders.copy_last_changes(a, b, self._tenant, copied.mark)
            given = {"vault": vault, "cursor": cursor_of(cast("int", await b.fetchval(_CURSOR)))}
            for rows in tables.ACTIVE:
                await tables.copy_rows(a, b, rows, [self._tenant, *([given[rows.given]] if rows.given else [])])
            await keep_common_codes(a, b, self._tenant)
            if await tables.list_sizes(a, self._tenant) != await tables.list_sizes(b, self._tenant):
                raise CommandError("The lists of the two cells differ after the copy. Nothing was switched.")

    async def _switch(self, a: asyncpg.Connection, b: asyncpg.Connection, leaving: LocalPlace) -> None:
        """Switch the directory; the other cell has all data, and this one accepts no change."""
        before, after = Place(self._source.name, leaving.version - 1), Place(leaving.cell, leaving.version)
        domains, keys = await _names(a, self._tenant)
        if leaving.cell != self._target.name:
            raise CommandError(f"The tenant is on its way to the cell `{leaving.cell}`. Give that one with --to.")
        if await self._directory.place(self._tenant) is None:
            before = after
        if not await self._directory.switch(self._tenant, before, after, domains=domains, keys=keys):
            raise CommandError(
                "The directory has another place of the tenant. Look at `mailwarden cells show`; "
                "`mailwarden tenants move TENANT --abort` keeps the tenant here."
            )
        await self._arrive(b, leaving.version)
        await self._set(a, leaving, TenantState.MOVED, leaving.version)

    async def _arrive(self, b: asyncpg.Connection, version: int) -> None:
        there = await read_place(b, self._tenant)
        if there.state is TenantState.ARRIVING and there.version == version:
            new = LocalPlace(TenantState.HERE, version, self._source.name, stored=True)
            await set_place(b, self._tenant, there, new)
        elif there.version < version:
            raise CommandError(
                f"The cell `{self._target.name}` has version {there.version} of the tenant, not {version}: was its "
                "database restored from a backup? Nothing was changed."
            )
        else:
            await confirm_earlier(b)  # the rows of the old cell go next

    async def _confirm(self, a: asyncpg.Connection, b: asyncpg.Connection, place: LocalPlace) -> None:
        """Finish a switch that was interrupted; a directory that was restored gets the place again."""
        if place.cell != self._target.name:
            raise CommandError(f"The tenant has moved to the cell `{place.cell}`. Move it from there.")
        listed = await self._directory.place(self._tenant)
        if listed is None or listed.version < place.version:
            before, after = listed or Place("", 0), Place(place.cell, place.version)
            domains, keys = await _names(b, self._tenant)
            await self._directory.switch(self._tenant, before, after, domains=domains, keys=keys)
            self._report("the directory was older than this cell: it has the tenant's place again")
        await self._arrive(b, place.version)

    async def _clean(self, a: asyncpg.Connection, place: LocalPlace, actor: Actor, pause: float | None) -> None:
        """Remove the rows of the old cell that jobs act on; the bytes of held messages stay for some days."""
        async with a.transaction():
            await a.execute(tables.PREPARE, str(self._tenant))
            await lock_place(a, self._tenant, LocalPlace(TenantState.MOVED, place.version, self._target.name))
            await wipe_active(a, self._tenant, endpoints=False)
            if pause is not None:
                details = f'{{"to": "{self._target.name}"}}'
                await a.execute(_AUDIT, actor.name, self._tenant, "tenants.move", str(self._tenant), details)

    async def _set(
        self,
        connection: asyncpg.Connection,
        before: LocalPlace,
        state: TenantState,
        version: int,
        *,
        seconds: float = 0.0,
    ) -> LocalPlace:
        """Change the place in the old cell, or raise if another command has changed it."""
        after = LocalPlace(state, version, before.cell, stored=True)
        if not await set_place(connection, self._tenant, before, after, seconds=seconds):
            raise CommandError("The place of the tenant has just been changed by another command. Run it again.")
        return after


async def _same_salt(a: asyncpg.Connection, b: asyncpg.Connection) -> bool:
    """Return whether the sender history of one cell has a meaning in the other."""
    return bool(await a.fetchval(_SALT) == await b.fetchval(_SALT))


async def _names(connection: asyncpg.Connection, tenant: UUID) -> tuple[Sequence[str], Sequence[str]]:
    """Return the domains and the ids of the API keys of a tenant, for the directory."""
    domains, keys = await connection.fetchval(_DOMAINS, tenant), await connection.fetchval(_KEYS, tenant)
    return cast("Sequence[str]", domains), cast("Sequence[str]", keys)
