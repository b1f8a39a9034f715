"""Messages in history under /v1: the explanation of one, searches, counts, and statistics of days.

Security: tenants are separated here: a credential searches its own tenants, and does not learn about others.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from mailwarden import errors
from mailwarden.access.audit import AuditStore
from mailwarden.access.callers import Access, Caller, call_scope
from mailwarden.access.endpoints import OF_TENANT, Endpoint, Lines
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.turns import Turns
from mailwarden.history.all_pages import read_pages
from mailwarden.history.explanation import ExplanationQuery, MessageExplanation, explanation_of
from mailwarden.history.requests import (
    MAX_STREAMED,
    AttackRecord,
    CountQuery,
    DayRecord,
    MessageCount,
    MessagesQuery,
    SearchResult,
    SearchResults,
    StatisticsQuery,
    StreamEnd,
    TenantStatistics,
)
from mailwarden.history.store import MAX_ROWS, Cursor, DayFigures, HistoryStore, Order, Page, Row, find_message
from mailwarden.model.ggrid import moment_of
from mailwarden.model.scope import Scope
from mailwarden.policy.rules import load_policy
from mailwarden.search.query import Query, parse_query
from mailwarden.serving.http_app import Call, finish_headers
from mailwarden.serving.ndjson import NDJSON, accepts_ndjson
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.strict_json import read_query, violation_at

PAGE = 100
STREAM_SECONDS = 120.0  # the time in which a stream searches
READ_SECONDS = 60.0  # the time that its reader may take beyond that
RUNNING = 3  # searches of all callers that run at once; each has a connection of its own
MAX_CALLS = 64  # of all callers
MAX_CALLS_EACH = 2  # of one credential
MAX_DAYS = 100  # as long as the figures of days are kept
DAY = timedelta(days=1)
_encode = msgspec.json.Encoder().encode

Name = TypeVar("Name", bound=str)

log = get_logger("messages")
_SEARCH = (*OF_TENANT, errors.SearchTooBroad, errors.RateLimited)


@dataclass(frozen=True, slots=True)
class Search:
    """A search in the tenants of a caller, one page at a time."""

    history: HistoryStore
    turns: Turns
    scope: Scope
    query: Query
    order: Order

    async def read(self, place: Cursor | None, rows: int) -> Page:
        async with self.turns.place():
            return await self.history.search(self.scope, self.query, place, rows, self.order)


class MessagesApi:
    """Answers from history; `searches` has connections of its own, so that searches never delay a scan."""

    def __init__(
        self, history: HistoryStore, searches: HistoryStore, tenants: TenantDirectory, audit: AuditStore, access: Access
    ) -> None:
        self._history = history
        self._searches = searches
        self._tenants = tenants
        self._audit = audit
        self._access = access
        self._turns = Turns("searches", each=MAX_CALLS_EACH, total=MAX_CALLS, running=RUNNING)

    async def explain(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return the explanation; another tenant's message is reported as missing.

        A message with recipients of several tenants has a row per tenant. The caller names the tenant, or gets the row
        of the submission's result within its scope, and the list of the others.
        """
        query = read_query(call.request.query.items(), ExplanationQuery)
        scope = caller.scope.narrowed(query.tenant_uid or None)
        request = await find_message(self._history, scope, call.variables["ggrid"])
        tenants = await self._history.tenants_of(caller.scope, request.ggrid)
        return _answer(explanation_of(request, load_policy(), tenants))

    async def search(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return a page of messages, or stream them all if the caller accepts NDJSON."""
        asked = read_query(call.request.query.items(), MessagesQuery)
        with self._turns.call(caller):
            scope, query = await self._query(asked, caller)
            search = Search(self._searches, self._turns, scope, query, Order(asked.order))
            if accepts_ndjson(call.request):
                return await self._stream(call, caller, asked, search)
            page = await search.read(_place(asked), PAGE if asked.limit is UNSET else asked.limit)
        return _answer(
            SearchResults(
                messages=tuple(map(found_message, page.rows)),
                next=_next(page),
                complete=page.complete,
                searched_back=_searched_back(page),
            )
        )

    async def count(self, call: Call, caller: Caller) -> web.StreamResponse:
        asked = read_query(call.request.query.items(), CountQuery)
        with self._turns.call(caller):
            scope, query = await self._query(asked, caller)
            async with self._turns.place():
                facets = await self._searches.facets(scope, query)
        return _answer(
            MessageCount(
                count=facets.total,
                exact=facets.exact,
                counted=facets.counted,
                tenants={str(tenant): number for tenant, number in facets.tenants.items()},
                verdicts=_named(facets.verdicts),
                decisions=_named(facets.decisions),
                states=_named(facets.states),
            )
        )

    async def statistics(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return the figures of the days; today is counted up to now."""
        asked = read_query(call.request.query.items(), StatisticsQuery)
        today = datetime.now(UTC).date()
        first, last = _period(asked, today)
        with self._turns.call(caller):
            scope = await call_scope(self._tenants, asked.tenant_uid, caller)
            async with self._turns.place():
                figures = await self._searches.days(scope, first, min(last, today - DAY) + DAY)
                so_far = await self._searches.today(scope) if first <= today <= last else None
                attacked = await self._searches.attacked_between(scope, _midnight(first), _midnight(last) + DAY)
        days = _days(figures)
        return _answer(
            TenantStatistics(
                tenant_uid=None if asked.tenant_uid is UNSET else asked.tenant_uid,
                days=(*days, _day(today, so_far, complete=False)) if so_far is not None else days,
                complete=len(days) == (last - first).days + 1,
                attacked_recipients=tuple(AttackRecord(*recipient) for recipient in attacked.recipients),
                attacking_domains=tuple(AttackRecord(*sender) for sender in attacked.senders),
                attacks_complete=attacked.complete,
            )
        )

    async def _stream(self, call: Call, caller: Caller, asked: MessagesQuery, search: Search) -> web.StreamResponse:
        """Stream the messages and a last line that says where the search ended; an error breaks the connection."""
        max_rows = MAX_STREAMED if asked.limit is UNSET else asked.limit
        first = await search.read(_place(asked), min(max_rows, MAX_ROWS))
        details = {"search": asked.q, "order": asked.order, "format": "ndjson", "maxRows": max_rows}
        await self._audit.record(search.scope, caller.actor(call), "messages.export", "messages", details)
        limits = {"X-Row-Limit": str(max_rows), "X-Time-Limit": f"{STREAM_SECONDS:.0f}"}
        response = web.StreamResponse(headers={"Content-Type": NDJSON, **limits})
        try:
            async with asyncio.timeout(STREAM_SECONDS + READ_SECONDS):
                finish_headers(response, call.request_id, call.request.path, call.headers)
                await response.prepare(call.request)
                await self._write_pages(call, response, search, first, max_rows)
                await response.write_eof()
        except Exception as error:
            log.warning("message_stream_broken", reason=type(error).__name__)
            if call.request.transport is not None:
                call.request.transport.abort()
            raise ConnectionAbortedError("The stream was broken off.") from error
        return response

    async def _write_pages(
        self, call: Call, response: web.StreamResponse, search: Search, first: Page, max_rows: int
    ) -> None:
        last, count = first, 0
        async for last in read_pages(search.read, first, max_rows=max_rows, seconds=STREAM_SECONDS):
            await self._access.caller(call, ApiPermission.READ)  # a key may have been revoked meanwhile
            await response.write(b"".join(_encode(found_message(row)) + b"\n" for row in last.rows))
            count += len(last.rows)
        end = StreamEnd(
            end=True,
            messages=count,
            next=_next(last),
            complete=last.complete and last.next is None,
            searched_back=_ended_at(last),
        )
        await response.write(_encode(end) + b"\n")

    async def _query(self, asked: CountQuery, caller: Caller) -> tuple[Scope, Query]:
        """Return the scope and the query; `tenant:` accepts the tenants that the caller may see."""
        scope = await call_scope(self._tenants, asked.tenant_uid, caller)
        names = {tenant.name: tenant.uid for tenant in self._tenants.known(scope)}
        since, until = _in_utc("/since", asked.since), _in_utc("/until", asked.until)
        return scope, parse_query(asked.q, since=since, until=until, tenants=names)


def found_message(row: Row) -> SearchResult:
    return SearchResult(
        ggrid=row.ggrid,
        tenant_uid=row.tenant,
        created=row.created.astimezone(UTC),
        verdict=row.verdict,
        decision=row.decision,
        from_address=row.from_address,
        from_name=row.from_name,
        recipients=row.recipients,
        subject=row.subject,
        tags=row.tags,
        points=row.points,
        reason=row.reason,
        campaign=row.campaign,
    )


def _place(asked: MessagesQuery) -> Cursor | None:
    return None if asked.after is UNSET else Cursor.parse(asked.after)


def _next(page: Page) -> str | None:
    return None if page.next is None else str(page.next)


def _searched_back(page: Page) -> datetime | None:
    return None if page.complete else page.searched_to


def _ended_at(page: Page) -> datetime | None:
    """Return how far a stream searched if it ended before the end of the period."""
    if not page.complete:
        return page.searched_to
    return None if page.next is None else moment_of(page.next.ggrid)


def _period(asked: StatisticsQuery, today: date) -> tuple[date, date]:
    """Return the first and the last day, or raise SchemaViolation."""
    last = today if asked.until is UNSET else asked.until
    first = max(last, date.min + 6 * DAY) - 6 * DAY if asked.since is UNSET else asked.since
    if first > last:
        raise violation_at("/from", "Must not be after `to`")
    if (last - first).days >= MAX_DAYS:
        raise violation_at("/from", f"The period has at most {MAX_DAYS} days")
    if not date.min < first <= last < date.max:
        raise violation_at("/from", "Not a day of history")
    return first, last


def _days(figures: DayFigures) -> tuple[DayRecord, ...]:
    return tuple(_day(day, figures.days.get(day, {}), complete=True) for day in sorted(figures.counted))


def _day(day: date, counts: Mapping[str, int], *, complete: bool) -> DayRecord:
    def of(kind: str) -> dict[str, int]:
        return {name.removeprefix(kind): number for name, number in sorted(counts.items()) if name.startswith(kind)}

    decisions = of("decision:")
    return DayRecord(day, complete, sum(decisions.values()), of("verdict:"), decisions)


def _named(figures: Mapping[Name, int]) -> dict[str, int]:
    return {str(name): number for name, number in figures.items()}


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _in_utc(pointer: str, moment: datetime | UnsetType) -> datetime | None:
    try:
        return None if moment is UNSET else moment.astimezone(UTC)
    except OverflowError:  # before year 1 or after 9999 in UTC
        raise violation_at(pointer, "Not a moment that can be written in UTC") from None


def _answer(record: Struct) -> web.Response:
    return web.Response(body=_encode(record), content_type="application/json")


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/messages", ApiPermission.READ, MessagesApi.search, "searchMessages",
        "Search messages; one page, or all messages as a stream with `Accept: application/x-ndjson`.",
        query=MessagesQuery, result=SearchResults,
        lines=Lines("One SearchResult a line, and one StreamEnd last; a stream without it was cut.", (StreamEnd,)),
        errors=(*_SEARCH, errors.InvalidQuery),
    ),
    Endpoint(
        "GET", "/v1/messages/count", ApiPermission.READ, MessagesApi.count, "countMessages",
        "Count the messages of a search.",
        query=CountQuery, result=MessageCount,
        errors=(*_SEARCH, errors.InvalidQuery),
    ),
    Endpoint(
        "GET", "/v1/messages/{ggrid}", ApiPermission.READ, MessagesApi.explain, "explainMessage",
        "Show why a message has its verdict.",
        query=ExplanationQuery, result=MessageExplanation,
        errors=(errors.MessageNotFound,),
    ),
    Endpoint(
        "GET", "/v1/statistics", ApiPermission.READ, MessagesApi.statistics, "getStatistics",
        "Count messages by day, verdict and decision, and name who was attacked most.",
        query=StatisticsQuery, result=TenantStatistics, errors=_SEARCH,
    ),
)  # fmt: skip
