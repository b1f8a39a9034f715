"""Figures of the rows in ClickHouse: counts for rollups and dashboards, attacks, and the vocabulary of searches.

Rollups stay in PostgreSQL (history/postgresql/statistics.py): they are small, and several guards take turns to count.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Connection
from mailwarden.errors import SearchTooBroad
from mailwarden.history.clickhouse.binary import Reader, list_literal, read_one, read_rows, text_literal
from mailwarden.history.clickhouse.clauses import scope_clause, span_clause, tenants_clause
from mailwarden.history.clickhouse.client import Clickhouse, TooSlow
from mailwarden.history.clickhouse.schema import NO_CAMPAIGN, KnownDays
from mailwarden.history.postgresql.days import ALL_TENANTS
from mailwarden.history.postgresql.statistics import BUCKET, LENGTHS, Counted
from mailwarden.history.recent import Recent
from mailwarden.history.spans import Span, query_span, windows
from mailwarden.history.store import ATTACKS, Attacked, CampaignFigure, Cursor, Range
from mailwarden.model.ggrid import first_ggrid
from mailwarden.model.scope import Scope
from mailwarden.search.kept_vocabularies import KeptVocabularies
from mailwarden.search.query import Query
from mailwarden.search.suggestions import Vocabulary
from mailwarden.search.words import SEPARATOR

COUNT_SECONDS = 2.0
ROLL_SECONDS = 20.0  # an hour of rows, in the background
ATTACKED_SECONDS = 2.0
ATTACKED_FRESH = 60.0
TOP = 8
MOST_ATTACKS = 20_000  # the newest ones, which are counted
MAX_MESSAGES = 4_000  # of a vocabulary
MAX_VALUES = 20_000
VOCABULARY_SECONDS = 1.0
MAX_ADDRESS = 254

# FINAL reads of each key the row that stays.
_MEASURED = f"""
SELECT tenant, intDiv(at, {int(BUCKET.total_seconds())}) AS bucket, measure, count() AS messages
FROM (
    SELECT tenant, at, arrayConcat(tags, [concat('decision:', toString(decision)),
           concat('verdict:', toString(verdict)), concat('ms:', toString(duration_class))]) AS measures
    FROM history FINAL WHERE {{span}} AND {{tenants}}
) ARRAY JOIN measures AS measure
GROUP BY tenant, bucket, measure FORMAT RowBinary
"""  # noqa: S608 -- a constant
_MESSAGES = "SELECT count() FROM history FINAL WHERE {span} AND {tenants} FORMAT RowBinary"
_ATTACKED = """
SELECT recipients, lower(if(from_address = '', envelope_from, from_address)), campaign, subject
FROM history FINAL WHERE {span} AND {tenants} AND verdict IN ({verdicts})
ORDER BY ggrid DESC LIMIT {limit} FORMAT RowBinary
"""
_NEWEST = """
SELECT words, from_address, recipients, url_hosts, tags FROM history FINAL WHERE {span} AND {tenants}
ORDER BY ggrid DESC LIMIT {limit} FORMAT RowBinary
"""
_WRITE_ROLLUPS = """
INSERT INTO history_rollups (tenant, hourly, bucket, counts)
SELECT tenant, false, bucket, counts::jsonb
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS given (tenant, bucket, counts)
ORDER BY tenant, bucket
ON CONFLICT (tenant, hourly, bucket) DO UPDATE SET counts = excluded.counts
"""


class _Measure(Struct, frozen=True):
    tenant: UUID
    bucket: datetime
    measure: str
    messages: int


class ClickhouseRows:
    """Counts rows for StatisticsReader and for the rollups; see RowCounter."""

    def __init__(self, clickhouse: Clickhouse) -> None:
        self._clickhouse = clickhouse

    async def roll(self, connection: Connection, begin: datetime, end: datetime) -> None:
        counted: defaultdict[tuple[UUID, datetime], Counter[str]] = defaultdict(Counter)
        for each in await self._measured(tenants_clause(None), begin, end, ROLL_SECONDS):
            for owner in (each.tenant, ALL_TENANTS):
                counted[owner, each.bucket][each.measure] += each.messages
        if counted:
            keys = list(counted)
            texts = [msgspec.json.encode(counted[key]).decode() for key in keys]
            owners, buckets = [tenant for tenant, _ in keys], [bucket for _, bucket in keys]
            await connection.execute(_WRITE_ROLLUPS, owners, buckets, texts)

    async def counts(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> Iterable[Counted]:
        found = await self._measured(tenants_clause(tenants), begin, end, COUNT_SECONDS)
        return [(each.bucket, each.measure, each.messages) for each in found]

    async def messages(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> int:
        sql = _MESSAGES.format(span=_period(begin, end), tenants=tenants_clause(tenants))
        return read_one(await _read(self._clickhouse, sql, COUNT_SECONDS), Reader.uint64)

    async def _measured(self, tenants: str, begin: datetime, end: datetime, seconds: float) -> Sequence[_Measure]:
        sql = _MEASURED.format(span=_period(begin, end), tenants=tenants)
        answer = await _read(self._clickhouse, sql, seconds)
        return await asyncio.to_thread(read_rows, answer, _read_measure)


class ClickhouseAttacked:
    """Counts the attacks of a period, and keeps the result for a minute."""

    def __init__(self, clickhouse: Clickhouse) -> None:
        self._clickhouse = clickhouse
        self._recent = Recent(ATTACKED_FRESH, self._read)

    async def read(self, scope: Scope, range_: Range) -> Attacked:
        return await self._recent.get(scope, range_)

    async def read_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked:
        sql = _ATTACKED.format(
            span=_period(since, until),
            tenants=scope_clause(scope),
            verdicts=list_literal(map(text_literal, ATTACKS)),
            limit=MOST_ATTACKS,
        )
        try:
            answer = await self._clickhouse.read_limited(sql, ATTACKED_SECONDS)
        except TooSlow:
            return Attacked(complete=False)
        return await asyncio.to_thread(_attacked, answer)

    async def _read(self, scope: Scope, range_: Range) -> Attacked:
        now = datetime.now(UTC)
        return await self.read_between(scope, now - LENGTHS[range_][0], now)


class ClickhouseVocabulary:
    """Reads the vocabularies of the newest messages, and keeps those of the last scopes."""

    def __init__(self, clickhouse: Clickhouse, days: KnownDays) -> None:
        self._clickhouse = clickhouse
        self._days = days
        self._kept = KeptVocabularies(self._read)

    async def read(self, scope: Scope) -> Vocabulary:
        return await self._kept.get(scope)

    async def _read(self, scope: Scope) -> Vocabulary | None:
        try:
            days = await self._days.read(VOCABULARY_SECONDS)
            answers: list[_Values] = []
            for window in windows(query_span(Query(), None, days)):
                sql = _NEWEST.format(
                    span=span_clause(window), tenants=scope_clause(scope), limit=MAX_MESSAGES - len(answers)
                )
                answers += read_rows(await self._clickhouse.read_limited(sql, VOCABULARY_SECONDS), _read_values)
                if len(answers) >= MAX_MESSAGES:
                    break
        except TooSlow:
            return None
        return await asyncio.to_thread(_vocabulary, answers)


class _Values(Struct, frozen=True):
    words: str
    sender: str
    recipients: tuple[str, ...]
    hosts: tuple[str, ...]
    tags: tuple[str, ...]


def _read_values(reader: Reader) -> _Values:
    return _Values(reader.text(), reader.text(), reader.texts(), reader.texts(), reader.texts())


def _vocabulary(rows: Sequence[_Values]) -> Vocabulary:
    counters: tuple[Counter[str], ...] = (Counter(), Counter(), Counter(), Counter(), Counter())
    lexemes, senders, recipients, hosts, tags = counters
    for row in rows:
        lexemes.update(each for each in row.words.split(SEPARATOR) if each and not each.startswith("@"))
        if 1 <= len(row.sender) <= MAX_ADDRESS:
            senders[row.sender.lower()] += 1
        recipients.update(recipient.lower() for recipient in row.recipients if len(recipient) <= MAX_ADDRESS)
        hosts.update(host for host in row.hosts if len(host) <= MAX_ADDRESS)
        tags.update(row.tags)
    return Vocabulary(len(rows), *(dict(counter.most_common(MAX_VALUES)) for counter in counters))


def _attacked(answer: bytes) -> Attacked:
    recipients: Counter[str] = Counter()
    senders: Counter[str] = Counter()
    campaigns: Counter[UUID] = Counter()
    subjects: dict[UUID, str] = {}
    reader, attacks = Reader(answer), 0
    while not reader.is_at_end:
        attacks += 1
        recipients.update({text.lower() for text in reader.texts()} - {""})
        sender, campaign, subject = reader.text(), reader.uuid(), reader.text()
        if domain := sender.rpartition("@")[2] if "@" in sender else "":
            senders[domain] += 1
        if campaign != NO_CAMPAIGN:
            campaigns[campaign] += 1
            subjects.setdefault(campaign, subject)  # the newest comes first
    largest = [(each, messages) for each, messages in campaigns.items() if messages > 1]
    largest.sort(key=lambda pair: (-pair[1], pair[0]))
    return Attacked(
        recipients=_top(recipients),
        senders=_top(senders),
        complete=attacks < MOST_ATTACKS,
        campaigns=tuple(CampaignFigure(each, subjects[each], messages) for each, messages in largest[:TOP]),
    )


def _top(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:TOP])


def _read_measure(reader: Reader) -> _Measure:
    tenant, bucket = reader.uuid(), reader.uint32()
    began = datetime.fromtimestamp(bucket * BUCKET.total_seconds(), UTC)
    return _Measure(tenant, began, reader.text(), reader.uint64())


def _period(begin: datetime, end: datetime) -> str:
    return span_clause(Span(Cursor(first_ggrid(begin)), Cursor(first_ggrid(end))))


async def _read(clickhouse: Clickhouse, sql: str, seconds: float) -> bytes:
    try:
        return await clickhouse.read_limited(sql, seconds)
    except TooSlow:
        raise SearchTooBroad("Counting these messages takes too long.") from None
