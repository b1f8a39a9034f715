"""The recipients that most attacks were sent to, the domains that sent them, and the largest campaigns."""

from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from mailwarden.database.pool import EVERYTHING, Database, scoped
from mailwarden.database.rows import read
from mailwarden.database.visible import in_scope
from mailwarden.history.postgresql.statistics import LENGTHS, range_values
from mailwarden.history.recent import Recent
from mailwarden.history.store import ATTACKS, Attacked, CampaignFigure, Range
from mailwarden.model.scope import Scope
from mailwarden.search.terms import term_hash

TOP = 8
MOST_ATTACKS = 20_000  # the newest ones, which are counted
FRESH_SECONDS = 60.0
SECONDS = 2

# A recipient counts once for each message; upper and lower case are the same.
_ATTACKED = f"""
WITH attacks AS MATERIALIZED (
    SELECT ggrid, recipients, lower(coalesce(nullif(from_address, ''), envelope_from)) AS sender, campaign, subject
    FROM history
    WHERE day BETWEEN $1::date AND $2::date AND ggrid >= $3 AND ggrid < $4 AND terms && $5::bigint[]
        AND {in_scope(scope="$6")}
    ORDER BY ggrid DESC LIMIT {MOST_ATTACKS}
), counted AS (
    SELECT 'recipient' AS kind, address AS value, count(*) AS messages, '' AS subject
    FROM attacks, LATERAL (SELECT DISTINCT lower(each) AS address FROM unnest(recipients) AS each) AS once
    GROUP BY address
    UNION ALL
    SELECT 'sender', substring(sender FROM '@([^@]+)$') AS domain, count(*), '' FROM attacks GROUP BY domain
    UNION ALL
    SELECT 'campaign', campaign::text, count(*), (array_agg(subject ORDER BY ggrid DESC))[1]
    FROM attacks WHERE campaign IS NOT NULL GROUP BY campaign HAVING count(*) > 1
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY kind ORDER BY messages DESC, value) AS place
    FROM counted WHERE value <> ''
)
SELECT kind, value, messages, subject, (SELECT count(*) FROM attacks) AS attacks FROM ranked
WHERE place <= {TOP} ORDER BY kind, place
"""  # noqa: S608 -- two constants


class AttackedReader:
    """Counts the attacks of a period, and keeps the result for a minute: an open dashboard asks every few seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recent = Recent(FRESH_SECONDS, self._read)

    async def read(self, scope: Scope, range_: Range) -> Attacked:
        return await self._recent.get(scope, range_)

    async def read_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked:
        """Count the attacks between two times, without keeping the result."""
        tenants = None if scope.tenants is None else sorted(scope.tenants)
        verdicts = [term_hash(f"verdict:{attack}") for attack in ATTACKS]
        first = f"SET LOCAL statement_timeout = '{SECONDS}s'; SET LOCAL plan_cache_mode = force_custom_plan"
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            try:
                rows = await connection.fetch(_ATTACKED, *range_values(since, until), verdicts, tenants)
            except asyncpg.QueryCanceledError:
                return Attacked(complete=False)
        named = [(str(row["kind"]), str(row["value"]), read(row, "messages", int)) for row in rows]
        return Attacked(
            recipients=tuple((value, messages) for kind, value, messages in named if kind == "recipient"),
            senders=tuple((value, messages) for kind, value, messages in named if kind == "sender"),
            complete=not rows or read(rows[0], "attacks", int) < MOST_ATTACKS,
            campaigns=tuple(
                CampaignFigure(UUID(str(row["value"])), str(row["subject"]), read(row, "messages", int))
                for row in rows
                if row["kind"] == "campaign"
            ),
        )

    async def _read(self, scope: Scope, range_: Range) -> Attacked:
        now = datetime.now(UTC)
        return await self.read_between(scope, now - LENGTHS[range_][0], now)
