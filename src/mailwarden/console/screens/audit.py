"""The Audit screen: searches audit events, shows each change, and exports them."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import Struct

from mailwarden.access.audit import AuditEvent, AuditFilter, AuditStore
from mailwarden.console.audit_search import OPERATORS, AuditPage, AuditQuery, parse_audit_query, search_audit
from mailwarden.console.auth import Page
from mailwarden.console.exports import csv_block, csv_head, format_in, send_file
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest
from mailwarden.errors import InvalidQuery, NotFound, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.serving.errors import STATUS_OF

PAGE = 50
MAX_SHOWN = 300
COLUMNS = ("number", "moment", "actor", "address", "tenant", "action", "subject", "requestId", "details")
_encode = msgspec.json.Encoder(order="sorted").encode


class Change(Struct, frozen=True):
    """One changed field of an audit event, with the value before if it is known."""

    name: str
    after: str
    before: str = ""


class AuditScreen:
    def __init__(self, audit: AuditStore) -> None:
        self._audit = audit

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/audit", Permission.AUDIT, self.show),
            Page("GET", "/audit/export/{format}", Permission.AUDIT, self.export),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        scope, found, status, mistake = scope_of(request), AuditPage(()), 200, ""
        asked = {name: request.query.get(name, "") for name in ("since", "until", "tenant")}
        filters, text = read_filters(request.query), read_text(request.query)
        try:
            found = await search_audit(self._audit, scope, parse_audit_query(text, filters), PAGE)
        except InvalidQuery as error:
            status, mistake = STATUS_OF[InvalidQuery], error.message
        return request.render(
            "audit/index.html",
            status=status,
            events=[(event, list(changes_of(event.details))) for event in found.events],
            found=found,
            asked={"q": text, **asked},
            mistake=mistake,
            operators=OPERATORS,
        )

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Stream all matching events as a file."""
        form = format_in(request, "The audit is")
        scope = scope_of(request)
        query = parse_audit_query(read_text(request.query), read_filters(request.query))
        write = as_csv if form == "csv" else as_ndjson
        return await send_file(request, "audit", form, write(self._matches(scope, query)))

    async def _matches(self, scope: Scope, query: AuditQuery) -> AsyncIterator[Sequence[AuditEvent]]:
        async for events in self._audit.pages(scope, query.filters):
            yield [event for event in events if query.matches(event)]


def scope_of(request: UserRequest) -> Scope:
    """Return the scope of the requested tenant, or of the active one, or the user's whole scope."""
    text = request.query.get("tenant", "")
    if not text:
        return request.view
    for tenant in request.tenants:
        if str(tenant.uid) == text:
            return Scope.of(tenant.uid)
    raise NotFound("There is no such tenant.")


def read_text(query: Mapping[str, str]) -> str:
    """Return the search in the URL; `actor`, `action` and `subject` are terms of it."""
    named = [f'{name}:"{value}"' for name in ("actor", "action", "subject") if (value := query.get(name, "").strip())]
    return " ".join([*named, query.get("q", "").strip()]).strip()


def read_filters(query: Mapping[str, str]) -> AuditFilter:
    """Read the period and the page in the URL; `until` includes the whole day."""
    until = _day(query, "until")
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise SchemaViolation("`before` must be the number of an audit event.")
    return AuditFilter(
        since=_day(query, "since"),
        until=until + timedelta(days=1) if until else None,
        before=int(before) if before else None,
    )


def changes_of(details: Mapping[str, object]) -> Iterator[Change]:
    """Yield the changed fields of an event with their values before and after."""
    before, after = details.get("before"), details.get("after")
    if isinstance(after, Mapping) and (before is None or isinstance(before, Mapping)):
        was = before or {}
        for name in sorted({*was, *after}):
            if was and was.get(name) != after.get(name):
                yield Change(str(name), _shown(after.get(name)), _shown(was.get(name)))
            elif not was and after.get(name) not in (None, "", []):
                yield Change(str(name), _shown(after.get(name)))
        details = {name: value for name, value in details.items() if name not in ("before", "after")}
    for name, value in sorted(details.items()):
        if value not in (None, "", []):
            yield Change(name, _shown(value))


async def as_ndjson(pages: AsyncIterator[Sequence[AuditEvent]]) -> AsyncIterator[bytes]:
    async for events in pages:
        yield b"".join(_encode(dict(zip(COLUMNS, _cells(event), strict=True))) + b"\n" for event in events)


async def as_csv(pages: AsyncIterator[Sequence[AuditEvent]]) -> AsyncIterator[bytes]:
    yield csv_head(COLUMNS)
    async for events in pages:
        yield csv_block(map(_cell_text, _cells(event)) for event in events)


def _cells(event: AuditEvent) -> tuple[object, ...]:
    moment = event.moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    tenant: UUID | str = event.tenant or ""
    return (
        event.number, moment, event.actor.name, event.actor.address or "", str(tenant), event.action, event.subject,
        event.actor.request_id, event.details,
    )  # fmt: skip


def _cell_text(cell: object) -> str:
    return _encode(cell).decode() if isinstance(cell, Mapping) else str(cell)


def _shown(value: object) -> str:
    if value is None or value in ("", []):
        return "none"
    if isinstance(value, list):
        text = ", ".join(map(_shown, value))
    else:
        text = value if isinstance(value, str) else _encode(value).decode()
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _day(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError):
        raise SchemaViolation(f"`{name}` is a day such as 2026-11-15.") from None
