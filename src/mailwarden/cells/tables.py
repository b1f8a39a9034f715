"""The rows of a tenant: which tables have them, and how each is copied from one cell's database to another's.

Rows that no background job acts on are copied before the switch, while the tenant is in use. All others are copied
within it, in one transaction.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

QUEUE = 64  # chunks between the two databases
# Both databases accept the mover's own writes, and show the rows of every tenant.
PREPARE = "SELECT set_config('mailwarden.mover', $1, true), set_config('mailwarden.scope', 'all', true)"
_COLUMNS = """
SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = ''
"""
_MINE = "{table}.tenant = $1::uuid"
_HELD = "EXISTS (SELECT FROM quarantine WHERE quarantine.uid = quarantine_recipients.message AND tenant = $1::uuid)"
_FED = "EXISTS (SELECT FROM feeds WHERE feeds.uid = feed_entries.feed AND feeds.tenant = $1::uuid)"
_PERSON = "EXISTS (SELECT FROM people WHERE people.uid = {table}.person AND $1::uuid = ANY (people.tenants))"
# A key or user of several tenants may be in the other cell already: the stricter of both applies (`shared_access`).
_ALL_TENANTS = "tenants = ARRAY(SELECT DISTINCT unnest(known.tenants || EXCLUDED.tenants) ORDER BY 1)"
_SAME_USER = f"""
UPDATE SET {_ALL_TENANTS}, disabled = least(known.disabled, EXCLUDED.disabled),
    totp_step = greatest(known.totp_step, EXCLUDED.totp_step)
WHERE known.name = EXCLUDED.name AND known.role = EXCLUDED.role AND cardinality(known.tenants) > 0
  AND known.password IS NOT DISTINCT FROM EXCLUDED.password AND known.totp IS NOT DISTINCT FROM EXCLUDED.totp
"""
_SAME_KEY = f"""
UPDATE SET {_ALL_TENANTS}, revoked = least(known.revoked, EXCLUDED.revoked),
    expires = least(known.expires, EXCLUDED.expires),
    scopes = ARRAY(SELECT unnest(known.scopes) INTERSECT SELECT unnest(EXCLUDED.scopes) ORDER BY 1),
    networks = CASE
        WHEN known.networks = '{{}}' THEN EXCLUDED.networks WHEN EXCLUDED.networks = '{{}}' THEN known.networks
        ELSE ARRAY(
            SELECT DISTINCT CASE WHEN one <<= other THEN one ELSE other END
            FROM unnest(known.networks) AS one, unnest(EXCLUDED.networks) AS other WHERE one && other
        ) END
WHERE known.secret = EXCLUDED.secret AND (known.networks = '{{}}' OR EXCLUDED.networks = '{{}}' OR EXISTS (
    SELECT FROM unnest(known.networks) AS one, unnest(EXCLUDED.networks) AS other WHERE one && other))
"""  # noqa: S608 -- constants of this file
_NOT_SHARED = "EXISTS (SELECT FROM people WHERE people.uid = moved.person AND people.tenants = ARRAY[$1::uuid])"


class Rows(Struct, frozen=True):
    """The rows of a tenant in one table; `values` replaces columns, `conflict` says what happens to an existing row."""

    table: str
    where: str = ""
    values: Mapping[str, str] = {}
    conflict: str = ""  # "": there is none
    given: str = ""  # the name of the value $2; $1 is the tenant
    only: str = ""  # a condition of the row `moved` in the other cell

    @property
    def condition(self) -> str:
        return self.where or _MINE.format(table=self.table)


# In the order of their references.
ACTIVE = (
    Rows(
        "people",
        "$1::uuid = ANY (people.tenants)",
        {"tenants": "ARRAY[$1::uuid]"},
        f"(uid) DO {_SAME_USER}",
    ),
    Rows("passkeys", _PERSON.format(table="passkeys"), only=_NOT_SHARED),
    Rows("recovery_codes", _PERSON.format(table="recovery_codes"), only=_NOT_SHARED),
    Rows("saved_searches", _PERSON.format(table="saved_searches"), conflict="DO NOTHING"),
    Rows(
        "api_keys",
        "$1::uuid = ANY (api_keys.tenants)",
        {"tenants": "ARRAY[$1::uuid]"},
        f"(key_id) DO {_SAME_KEY}",
    ),
    Rows("quarantine", values={"vault": "$2::uuid"}, given="vault"),
    Rows("quarantine_recipients", _HELD, {"claimed_until": "NULL::timestamptz"}),
    Rows("quarantine_digests"),
    # The statistics of Rspamd stay in the old cell: the new one learns all reports in a generation of its own.
    Rows("learning", values={"generation": "wanted + 1", "wanted": "wanted + 1"}),
    Rows("lessons", values={"learned_in": "0"}),
    Rows("cases"),
    Rows("case_reports"),
    Rows("case_report_days"),
    Rows("weekly_reports"),
    Rows("weekly_report_mails"),
    # Updates that wait for approval stay behind: without these marks the new cell fetches the feed again.
    Rows("feeds", values={"leased_until": "NULL::timestamptz", "etag": "''::text", "modified": "''::text"}),
    Rows("feed_entries", _FED),
    # Events before the switch are delivered by the old cell, all later ones by the new.
    Rows(
        "event_endpoints",
        "event_endpoints.tenants = ARRAY[$1::uuid]",
        {"cursor": "$2::text", "lease": "NULL::uuid", "lease_until": "NULL::timestamptz"},
        given="cursor",
    ),
)
_LIST_COLUMNS = (
    "entry, comment, created, created_by, updated, updated_by, expires, hits, last_hit, previous"  # of list_entries
)
_COPY_LISTS = "SELECT name FROM lists WHERE tenant = $1"
_MAKE_LISTS = "INSERT INTO lists (tenant, name) SELECT $1, name FROM unnest($2::text[]) AS name ON CONFLICT DO NOTHING"
_STAGE_ENTRIES = f"""
CREATE TEMP TABLE moved_entries ON COMMIT DROP AS
SELECT ''::text AS list, {_LIST_COLUMNS} FROM list_entries WITH NO DATA
"""  # noqa: S608 -- constants of this file
_ENTRIES = f"""
SELECT lists.name, {_LIST_COLUMNS} FROM list_entries JOIN lists USING (list_id) WHERE lists.tenant = $1
"""  # noqa: S608
# A change that the first copy did not see, or that ran meanwhile.
_CHANGED = """
SELECT lists.name, array_agg(DISTINCT changed.entry) AS entries
FROM list_changes JOIN lists USING (list_id), unnest(list_changes.entries) AS changed (entry)
WHERE lists.tenant = $1 AND list_changes.transaction >= $2::text::xid8 GROUP BY lists.name
"""
_CHANGED_ENTRIES = f"{_ENTRIES} AND lists.name = $2 AND entry = ANY ($3::text[])"
_DROP_CHANGED = """
DELETE FROM list_entries USING lists
WHERE lists.list_id = list_entries.list_id AND tenant = $1 AND name = $2 AND entry = ANY ($3::text[])
"""
_TAKE_ENTRIES = f"""
INSERT INTO list_entries (list_id, {_LIST_COLUMNS})
SELECT list_id, {_LIST_COLUMNS} FROM moved_entries JOIN lists ON lists.tenant = $1 AND lists.name = moved_entries.list
"""  # noqa: S608
# The replicas of the guards look at these entries.
_ANNOUNCE = """
INSERT INTO list_changes (list_id, entries)
SELECT list_id, array_agg(entry) FROM (
    SELECT list_id, entry, (row_number() OVER (PARTITION BY list_id ORDER BY entry)) / 1000 AS batch
    FROM list_entries JOIN lists USING (list_id) WHERE tenant = $1
) AS numbered GROUP BY list_id, batch
"""
_ANNOUNCE_CHANGED = """
INSERT INTO list_changes (list_id, entries) SELECT list_id, $3::text[] FROM lists WHERE tenant = $1 AND name = $2
"""
_COUNT_ENTRIES = """
UPDATE lists SET entries = (SELECT count(*) FROM list_entries WHERE list_entries.list_id = lists.list_id)
WHERE tenant = $1
"""
_LIST_SIZES = """
SELECT name, (SELECT count(*) FROM list_entries WHERE list_entries.list_id = lists.list_id) AS entries
FROM lists WHERE tenant = $1
"""


async def columns_of(connection: asyncpg.Connection, table: str) -> Sequence[str]:
    return cast("Sequence[str]", await connection.fetchval(_COLUMNS, table))


async def copy(
    source: asyncpg.Connection, target: asyncpg.Connection, query: str, values: Sequence[object], table: str
) -> int:
    """Copy the result of a query into a table; never more than some chunks are in memory. Return the rows."""
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE)

    async def read() -> None:
        await source.copy_from_query(query, *values, output=chunks.put, format="binary")
        await chunks.put(None)

    async def written() -> AsyncIterator[bytes]:
        while (chunk := await chunks.get()) is not None:
            yield chunk

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        done = str(await target.copy_to_table(table, source=written(), format="binary"))
    return int(done.rpartition(" ")[2])


async def copy_rows(
    source: asyncpg.Connection, target: asyncpg.Connection, rows: Rows, values: Sequence[object]
) -> int:
    """Copy the rows of a tenant, within a transaction of the target; return their number.

    Most tables have no row of a tenant: one look at the old cell is all that they cost while changes pause.
    """
    known = values[: next(number for number in (3, 2, 1) if number == 1 or f"${number}" in rows.condition)]
    if not await source.fetchval(f"SELECT EXISTS (SELECT FROM {rows.table} WHERE {rows.condition})", *known):  # noqa: S608
        return 0
    columns = await columns_of(target, rows.table)
    names = ", ".join(f'"{name}"' for name in columns)
    chosen = ", ".join(rows.values.get(name, f'{rows.table}."{name}"') for name in columns)
    query = f"SELECT {chosen} FROM {rows.table} WHERE {rows.condition}"  # noqa: S608 -- constants and columns
    stage = f"moved_{rows.table}"
    await target.execute(
        f"CREATE TEMP TABLE {stage} ON COMMIT DROP AS SELECT {names} FROM {rows.table} WITH NO DATA"  # noqa: S608
    )
    number = await copy(source, target, query, values, stage)
    only = f"WHERE {rows.only}" if rows.only else ""
    conflict = f"ON CONFLICT {rows.conflict}" if rows.conflict else ""
    await target.execute(
        f"INSERT INTO {rows.table} AS known ({names}) SELECT {names} FROM {stage} AS moved {only} {conflict}",  # noqa: S608
        *values[: 1 if rows.only else 0],
    )
    await target.execute(f"DROP TABLE {stage}")
    return number


async def copy_lists(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID) -> int:
    """Copy all list entries of a tenant; return their number."""
    names = [str(row["name"]) for row in await source.fetch(_COPY_LISTS, tenant)]
    await target.execute(_MAKE_LISTS, tenant, names)
    await target.execute(_STAGE_ENTRIES)
    number = await copy(source, target, _ENTRIES, [tenant], "moved_entries")
    await target.execute(_TAKE_ENTRIES, tenant)
    await target.execute("DROP TABLE moved_entries")
    await target.execute(_COUNT_ENTRIES, tenant)
    await target.execute(_ANNOUNCE, tenant)
    return number


async def copy_list_changes(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, since: str) -> int:
    """Copy the entries that were changed by this transaction or later; return their number."""
    names = [str(row["name"]) for row in await source.fetch(_COPY_LISTS, tenant)]
    await target.execute(_MAKE_LISTS, tenant, names)
    total = 0
    for row in await source.fetch(_CHANGED, tenant, since):
        name, entries = str(row["name"]), cast("Sequence[str]", row["entries"])
        await target.execute(_DROP_CHANGED, tenant, name, entries)
        await target.execute(_STAGE_ENTRIES)
        await copy(source, target, _CHANGED_ENTRIES, [tenant, name, entries], "moved_entries")
        await target.execute(_TAKE_ENTRIES, tenant)
        await target.execute("DROP TABLE moved_entries")
        await target.execute(_ANNOUNCE_CHANGED, tenant, name, entries)
        total += len(entries)
    await target.execute(_COUNT_ENTRIES, tenant)
    return total


async def list_sizes(connection: asyncpg.Connection, tenant: UUID) -> dict[str, int]:
    """Return the number of entries of each list."""
    return {str(row["name"]): cast("int", row["entries"]) for row in await connection.fetch(_LIST_SIZES, tenant)}
