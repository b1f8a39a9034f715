"""The interface of a history store, the records it returns, and the lookup of one message.

Every store passes tests/contracts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import MessageNotFound
from mailwarden.journal.records import decode, encode
from mailwarden.model.ggrid import moment_of
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import Similarity
from mailwarden.search.count import Count
from mailwarden.search.query import Query
from mailwarden.search.suggestions import Vocabulary
from mailwarden.senders.model import Counting, SenderCounts, SenderStore

MAX_ROWS = 500
MAX_COUNTED = 1_000
MAX_COMPARED = 500  # matches of which the points are compared
RECENT = timedelta(minutes=2)  # longer than an analysis takes, so the row may still be in a guard's queue
WAIT_SECONDS = 1.0
RETRY_SECONDS = 0.1

ATTACKS = (Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF)


class Row(Struct, frozen=True):
    """One message as a list of messages shows it."""

    ggrid: UUID
    tenant: UUID
    created: datetime
    from_address: str
    from_name: str
    recipients: tuple[str, ...]
    subject: str
    verdict: Verdict
    decision: Decision
    tags: tuple[str, ...]
    summary: str
    points: int = 0  # of the verdict with the most
    campaign: UUID | None = None
    reason: str = ""  # the strongest one for the verdict, or the summary
    request: FinishedRequest | None = None  # the whole, for texts in another language

    @classmethod
    def of(cls, request: FinishedRequest, scope: Scope) -> "Row":
        return cls(
            ggrid=request.ggrid,
            tenant=request.tenant,
            created=request.created,
            from_address=request.summary.from_address or request.envelope.sender,
            from_name=request.summary.from_name,
            recipients=request.envelope.recipients,
            subject=request.summary.subject,
            verdict=request.judgement.verdict,
            decision=request.ruling.decision,
            tags=request.tags,
            summary=request.judgement.summary,
            points=max(request.judgement.points.values(), default=0),
            campaign=campaign_for(scope, request),
            reason=request.judgement.short,
            request=request,
        )

    @property
    def place(self) -> str:
        """The row in URLs and forms: the ggrid and the tenant."""
        return str(Cursor.of(self))


def campaign_for(scope: Scope, request: FinishedRequest) -> UUID | None:
    """Return the campaign that the scope may see: over all tenants only if the scope has all tenants."""
    if request.campaign is None:
        return None
    return request.campaign.shared if scope.tenants is None else request.campaign.own


class Cursor(Struct, frozen=True, order=True):
    """A position in history. Rows are ordered by ggrid, and rows of one ggrid by tenant.

    A cursor without a tenant stands before all rows of the ggrid.
    """

    ggrid: UUID
    tenant: UUID = UUID(int=0)

    def __str__(self) -> str:
        return f"{self.ggrid}~{self.tenant}" if self.tenant.int else str(self.ggrid)

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor that `str` wrote, or raise ValueError."""
        ggrid, _, tenant = text.partition("~")
        return cls(UUID(ggrid), UUID(tenant) if tenant else UUID(int=0))

    @classmethod
    def of(cls, row: Row | FinishedRequest) -> "Cursor":
        return cls(row.ggrid, row.tenant)


class Order(StrEnum):
    """The order of matches: by time, or by points, which are compared among the newest MAX_COMPARED matches only."""

    NEWEST = "newest"
    OLDEST = "oldest"
    POINTS = "points"


class Page(Struct, frozen=True):
    """Rows in the order of the search. `next` is the cursor of the next page; None means that there are no more rows.

    A search that finds few rows may stop before the end of its time range. Then `complete` is False, `searched_to`
    is the last time it read, and `next` continues from there. By points, `complete` is False if there are matches
    that were not compared: those before `searched_to`. A search that ended, with `next` None, is not `complete` if the
    store may lack the newest rows.
    """

    rows: tuple[Row, ...]
    next: Cursor | None = None
    complete: bool = True
    searched_to: datetime | None = None


class Facets(Struct, frozen=True):
    """The number of matches of a search, and the newest of them by tenant, verdict, decision and state.

    If not `exact`, there may be more than `total`: the time was up. `counted` matches are in the other figures, at
    most MAX_COUNTED.
    """

    total: int
    exact: bool
    counted: int = 0
    tenants: Mapping[UUID, int] = {}
    verdicts: Mapping[Verdict, int] = {}
    decisions: Mapping[Decision, int] = {}
    states: Mapping[str, int] = {}


class Range(StrEnum):
    """The period of a dashboard, up to now."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class Bucket(Struct, frozen=True):
    """The messages that began in one interval, by decision."""

    start: datetime
    decisions: Mapping[Decision, int]

    @property
    def messages(self) -> int:
        return sum(self.decisions.values())


class Statistics(Struct, frozen=True):
    """The figures of a dashboard."""

    range: Range
    since: datetime
    until: datetime
    width: timedelta
    buckets: tuple[Bucket, ...]
    decisions: Mapping[Decision, int]
    verdicts: Mapping[Verdict, int]
    tags: tuple[tuple[str, int], ...]  # the most frequent first
    p50: float | None  # milliseconds
    p95: float | None
    per_second: float  # over the last minute

    @property
    def messages(self) -> int:
        return sum(self.decisions.values())


class CampaignFigure(Struct, frozen=True):
    """A campaign within one tenant: its id, the subject of its newest attack, and the number of attacks."""

    campaign: UUID
    subject: str
    messages: int


class Attacked(Struct, frozen=True):
    """The recipients with most attacks and the domains that sent most of them, each with a number of messages.

    A campaign has at least two attacks.

    If not `complete`, only the newest attacks are counted, or none because the time was up.
    """

    recipients: tuple[tuple[str, int], ...] = ()
    senders: tuple[tuple[str, int], ...] = ()
    complete: bool = True
    campaigns: tuple[CampaignFigure, ...] = ()


class DayFigures(Struct, frozen=True):
    """The messages of whole days, by `decision:…`, `verdict:…` and the tag `policy.monitor`; `counted` has all days
    that were counted, also those without messages.
    """

    days: Mapping[date, Mapping[str, int]] = {}
    counted: frozenset[date] = frozenset()

    def total(self, measure: str) -> int:
        return sum(counts.get(measure, 0) for counts in self.days.values())


class RejectedRequest(Struct, frozen=True):
    request: FinishedRequest
    reason: str


class HistoryRow(Struct, frozen=True):
    """A request to store with its campaign, and its record as the journal has it."""

    request: FinishedRequest
    record: bytes

    @classmethod
    def of(cls, request: FinishedRequest) -> "HistoryRow":
        return cls(request, encode(request))


class StoredRecord(Struct, frozen=True):
    """A record as a store has it, and the campaign from its columns."""

    record: bytes
    campaign: CampaignIds | None = None

    @property
    def request(self) -> FinishedRequest:
        request = decode(self.record)
        return request if self.campaign is None else replace(request, campaign=self.campaign)


class Saved(Struct, frozen=True):
    """How many requests are stored now, also those stored before; the rejected ones; the counts that were added."""

    stored: int
    rejected: tuple[RejectedRequest, ...] = ()
    counts: tuple[SenderCounts, ...] = ()

    def __add__(self, other: "Saved") -> "Saved":
        return Saved(self.stored + other.stored, self.rejected + other.rejected, self.counts + other.counts)


class CampaignStore(Protocol):
    """Groups similar messages; see history/campaigns.py."""

    async def assign(
        self, scope: Scope, messages: Sequence[tuple[UUID, Similarity]], day: date
    ) -> Sequence[CampaignIds | None]:
        """Return the campaign of each message of a tenant; None if it has no keys or is outside the scope."""

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        """Forget the references of campaigns without a message since that day; return their number."""


class HistoryStore(Protocol):
    """Stores finished guard requests by ggrid and tenant; a scope sees only its own tenants' rows."""

    senders: SenderStore
    campaigns: CampaignStore

    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved:
        """Store the requests; one that is stored already stays unchanged and gets no second event.

        `counting` is called with the requests that are new. Its counts are added in the transaction that stores them,
        so a batch that is sent again counts nothing twice. A request that cannot be stored does not stop the others.
        Raise StorageUnavailable if the store is down; then some of the requests may be stored.
        """

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest], counting: Counting | None = None) -> Saved:
        """Encode the requests and store them."""

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        """Return the request, or None if the scope has no row of that ggrid.

        A message to recipients of several tenants has a row for each: return the most severe row of the scope.
        """

    async def find_many(self, scope: Scope, places: Sequence[Cursor]) -> Mapping[Cursor, FinishedRequest]:
        """Return the requests of these rows, by ggrid and tenant, that the scope has; give at most MAX_ROWS."""

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        """Return the tenants of the scope that have a row of that ggrid, the tenant of `find` first."""

    async def search(
        self,
        scope: Scope,
        query: Query,
        place: Cursor | None = None,
        limit: int = 50,
        order: Order = Order.NEWEST,
    ) -> Page:
        """Return the first rows in this order that match the query, from the cursor `place` on; at most MAX_ROWS.

        The search is limited in time: an incomplete page says how far it read. Raise SearchTooBroad if no part of
        the time range could be read in time.
        """

    async def facets(self, scope: Scope, query: Query) -> Facets:
        """Count the matches; limited in time, and raises, as `search`."""

    async def vocabulary(self, scope: Scope) -> Vocabulary:
        """Return the values that occur in the newest messages of the scope, at most a minute old."""

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        """Return the newest whole requests since then that have one of the terms (see search/terms.py).

        Without terms, return the newest of all. The result may be shorter than `limit` if time runs out.
        """

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        """Count the requests since then that have one of the terms, for at most `timeout` seconds."""

    async def statistics(self, scope: Scope, range_: Range) -> Statistics:
        """Return the figures of the range up to now, at most a few seconds old."""

    async def attacked(self, scope: Scope, range_: Range) -> Attacked:
        """Return who was attacked most in the range up to now and by whom, at most a minute old."""

    async def attacked_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked:
        """Return who was attacked most between two times, by whom and in which campaigns; limited in time."""

    async def days(self, scope: Scope, since: date, until: date) -> DayFigures:
        """Return the figures of the days from `since` up to the day before `until`, as far as they were counted.

        `update_rollups` counts a day when it has ended.
        """

    async def today(self, scope: Scope) -> Mapping[str, int]:
        """Return the figures of today (UTC) so far, by the measures of DayFigures."""

    async def update_rollups(self, scope: Scope) -> datetime | None:
        """Count new rows for `statistics` and return the time counted up to; None if another process is counting."""

    async def now(self, scope: Scope) -> datetime:
        """Return PostgreSQL's time for a job that deletes; raise CommandError if this host's clock differs."""

    async def delete_days(self, scope: Scope, before: date) -> int:
        """Delete whole days before the given day and return their number; only the deployment's scope may."""

    async def tenant_retention(self, scope: Scope) -> Mapping[UUID, int]:
        """Return the days of retention of the tenants that have a retention of their own."""

    async def delete_for_tenants(self, scope: Scope, before: Mapping[UUID, date]) -> int:
        """Delete the rows of each tenant before its day; return how many rows."""


async def find_message(history: HistoryStore, scope: Scope, text: str) -> FinishedRequest:
    """Return the message of this ggrid; raise MessageNotFound if it is invalid, deleted or outside the scope.

    History is written shortly after the response, so a recent message is looked up again for a moment.
    """
    ggrid = parse_ggrid(text)
    loop = asyncio.get_running_loop()
    end = loop.time() + (WAIT_SECONDS if is_recent(ggrid, datetime.now(UTC)) else 0)
    while True:
        request = await history.find(scope, ggrid)
        if request is not None:
            return request
        if loop.time() >= end:
            raise _not_found()
        await asyncio.sleep(RETRY_SECONDS)


def parse_ggrid(text: str) -> UUID:
    """Return the ggrid in a path, or raise MessageNotFound."""
    try:
        ggrid = UUID(text)
    except ValueError:
        raise _not_found() from None
    if str(ggrid) != text.lower():
        raise _not_found()
    return ggrid


def is_recent(ggrid: UUID, now: datetime) -> bool:
    created = moment_of(ggrid)
    return created is not None and abs(now - created) < RECENT


def _not_found() -> MessageNotFound:
    return MessageNotFound("There is no message with this ggrid.")
