"""Adds the search words to rows that were stored without them, the newest day first, in small transactions.

Rows lack words if an earlier version stored them, also a guard of that version during an upgrade.
"""

from datetime import UTC, date, datetime, timedelta
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection, Row
from mailwarden.errors import UnknownRecordVersion
from mailwarden.history.records import decode
from mailwarden.history.words import stored_words, tenant_lexeme

BATCH = 200
_LOCK = 0x6D77776F726473  # one guard at a time

_CHECK = """
INSERT INTO history_unindexed (day, known) SELECT unnest($1::date[]), false
ON CONFLICT (day) DO UPDATE SET reached = '00000000-0000-0000-0000-000000000000'
"""
_NEXT = "SELECT day, reached FROM history_unindexed ORDER BY day DESC LIMIT 1"
_ROWS = """
SELECT ggrid, tenant, record FROM history WHERE day = $1 AND ggrid >= $2 AND words IS NULL
ORDER BY ggrid, tenant LIMIT $3
"""
_UPDATE = """
UPDATE history SET words = array_to_tsvector(string_to_array(given.words, E'\\x1f'))
FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS given (ggrid, tenant, words)
WHERE day = $1 AND history.ggrid = given.ggrid AND history.tenant = given.tenant AND history.words IS NULL
"""
_REACHED = "UPDATE history_unindexed SET reached = $2 WHERE day = $1"
_DONE = "DELETE FROM history_unindexed WHERE day = $1"
# The newest day whose rows are known to lack words, within the days of a search.
_UNINDEXED = "SELECT max(day) FROM history_unindexed WHERE known AND day BETWEEN $1 AND $2"


async def check_recent_days(connection: Connection) -> None:
    """Have today and yesterday read once more: another guard may still have written rows without words."""
    today = datetime.now(UTC).date()
    await connection.execute(_CHECK, [today, today - timedelta(days=1)])


async def add_words(connection: Connection) -> int | None:
    """Add the words of one batch and return its size; None if no day is left, or another guard is at work."""
    async with connection.transaction():
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK):
            return None
        place = await connection.fetchrow(_NEXT)
        if place is None:
            return None
        day = cast("date", place["day"])
        rows = await connection.fetch(_ROWS, day, place["reached"], BATCH)
        if rows:
            ggrids = [cast("UUID", row["ggrid"]) for row in rows]
            tenants = [cast("UUID", row["tenant"]) for row in rows]
            await connection.execute(_UPDATE, day, ggrids, tenants, [_words(row) for row in rows])
            await connection.execute(_REACHED, day, ggrids[-1])
        if len(rows) < BATCH:
            await connection.execute(_DONE, day)
        return len(rows)


async def newest_unindexed_day(connection: Connection, first: date, last: date) -> date | None:
    return cast("date | None", await connection.fetchval(_UNINDEXED, first, last))


def _words(row: Row) -> str:
    """Return the lexemes of a stored record; a record that cannot be read has its tenant only."""
    try:
        return stored_words(decode(cast("bytes", row["record"])))
    except UnknownRecordVersion:
        return tenant_lexeme(cast("UUID", row["tenant"]))
