"""Reads the values of recent messages from PostgreSQL, for completions and corrections of searches.

A vocabulary is kept for a minute for each scope, because every key press of a user asks for it.
"""

import time
from collections import Counter
from collections.abc import Sequence

import asyncpg

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read
from mailwarden.history.postgresql.partitions import existing_days
from mailwarden.history.postgresql.search import (
    INDEX,
    RESERVED,
    Clauses,
    reading,
)
from mailwarden.history.spans import Span, query_span, windows
from mailwarden.model.scope import Scope
from mailwarden.search.kept_vocabularies import KeptVocabularies
from mailwarden.search.query import Query
from mailwarden.search.suggestions import Vocabulary

MAX_MESSAGES = 4_000
ENOUGH = 1_000  # messages among the newest of all tenants, so that the index of terms is not asked
MAX_VALUES = 20_000  # of one kind, the most frequent ones
SECONDS = 0.3  # after which no further window is read
TIMEOUT = 1.0  # of one statement, on a busy machine
_MESSAGES, _LEXEME, _SENDER, _RECIPIENT, _HOST, _TAG = "messages", "lexeme", "sender", "recipient", "host", "tag"

_COUNT_VALUES = """
WITH newest AS MATERIALIZED ({newest})
SELECT 'messages' AS kind, '' AS value, count(*) AS number FROM newest
UNION ALL (SELECT 'lexeme', each, count(*) FROM newest, unnest(tsvector_to_array(words)) AS each
    WHERE each NOT LIKE '@%' GROUP BY each ORDER BY count(*) DESC LIMIT {most})
UNION ALL (SELECT 'sender', lower(from_address), count(*) FROM newest
    WHERE length(from_address) BETWEEN 1 AND 254 GROUP BY lower(from_address) ORDER BY count(*) DESC LIMIT {most})
UNION ALL (SELECT 'recipient', lower(each), count(*) FROM newest, unnest(recipients) AS each
    WHERE length(each) < 255 GROUP BY lower(each) ORDER BY count(*) DESC LIMIT {most})
UNION ALL (SELECT 'host', each, count(*) FROM newest, unnest(url_hosts) AS each
    WHERE length(each) < 255 GROUP BY each ORDER BY count(*) DESC LIMIT {most})
UNION ALL (SELECT 'tag', each, count(*) FROM newest, unnest(tags) AS each
    GROUP BY each ORDER BY count(*) DESC LIMIT {most})
"""
_OF_SPAN = """
SELECT words, from_address, recipients, url_hosts, tags FROM history
WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5) AND {conditions}
ORDER BY day DESC, ggrid DESC, tenant DESC LIMIT $7
"""
_OF_NEWEST = """
SELECT words, from_address, recipients, url_hosts, tags FROM (
    SELECT * FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
      AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5)
    ORDER BY day DESC, ggrid DESC, tenant DESC LIMIT $7
) AS history WHERE {conditions}
"""


class VocabularyReader:
    """Reads vocabularies, and keeps those of the last scopes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept = KeptVocabularies(self._read)

    async def read(self, scope: Scope) -> Vocabulary:
        return await self._kept.get(scope)

    async def _read(self, scope: Scope) -> Vocabulary | None:
        """Return the vocabulary, or None if a statement took too long."""
        async with reading(self._database, TIMEOUT) as connection:
            try:
                return await _count(connection, scope)
            except asyncpg.QueryCanceledError:
                return None


async def _count(connection: Connection, scope: Scope) -> Vocabulary:
    clauses = Clauses(scope, (), RESERVED)
    newest, of_span = (_statement(sql, clauses) for sql in (_OF_NEWEST, _OF_SPAN))
    began = time.monotonic()
    span = query_span(Query(), None, await existing_days(connection))
    counts = _add({}, await _fetch(connection, newest, span, MAX_MESSAGES, clauses))
    if _messages(counts) >= ENOUGH or scope.tenants is None:
        return _vocabulary(counts)
    # Few of the newest messages are of this scope: the index finds its messages, in windows of time.
    await connection.execute(INDEX)
    counts = {}
    for window in windows(span):
        rest = MAX_MESSAGES - _messages(counts)
        if rest <= 0 or time.monotonic() - began > SECONDS:
            break
        counts = _add(counts, await _fetch(connection, of_span, window, rest, clauses))
    return _vocabulary(counts)


def _statement(newest: str, clauses: Clauses) -> str:
    return _COUNT_VALUES.format(newest=newest.format(conditions=clauses.sql), most=MAX_VALUES)


async def _fetch(connection: Connection, sql: str, span: Span, most: int, clauses: Clauses) -> Sequence[Row]:
    return await connection.fetch(sql, *span.values, most, *clauses.values)


def _add(counts: dict[str, Counter[str]], rows: Sequence[Row]) -> dict[str, Counter[str]]:
    for row in rows:
        counts.setdefault(str(row["kind"]), Counter())[str(row["value"])] += read(row, "number", int)
    return counts


def _messages(counts: dict[str, Counter[str]]) -> int:
    return counts.get(_MESSAGES, Counter())[""]


def _vocabulary(counts: dict[str, Counter[str]]) -> Vocabulary:
    return Vocabulary(
        _messages(counts), *(counts.get(kind, {}) for kind in (_LEXEME, _SENDER, _RECIPIENT, _HOST, _TAG))
    )
