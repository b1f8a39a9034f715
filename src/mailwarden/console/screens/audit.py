"""The Audit screen: searches audit events, shows each change, and exports them."""

import csv
import io
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import Struct

from mailwarden.access.audit import AuditEvent, AuditFilter, AuditStore
from mailwarden.console.auth import Page
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest
from mailwarden.errors import NotFound, SchemaViolation
from mailwarden.model.scope import Scope

PAGE = 50
MAX_SHOWN = 300
FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
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
        question = read_question(request.query)
        events = await self._audit.find(scope_of(request), question, PAGE + 1)
        asked = {
            name: request.query.get(name, "") for name in ("actor", "action", "subject", "since", "until", "tenant")
        }
        return request.render(
            "audit/index.html",
            events=[(event, list(changes_of(event.details))) for event in events[:PAGE]],
            older=events[PAGE - 1].number if len(events) > PAGE else None,
            asked=asked,
        )

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Stream all matching events as a file."""
        form = request.variables["format"]
        if form not in FORMATS:
            raise NotFound("The audit is exported as csv or ndjson.")
        question, scope = read_question(request.query), scope_of(request)
        write = as_csv if form == "csv" else as_ndjson
        name = f'attachment; filename="audit.{form}"'
        response = await request.begin_stream(FORMATS[form], **{"Content-Disposition": name})
        async for block in write(self._audit.pages(scope, question)):
            await response.write(block)
        await response.write_eof()
        return response


def scope_of(request: UserRequest) -> Scope:
    """Return the scope of the requested tenant, or the user's whole scope."""
    text = request.query.get("tenant", "")
    if not text:
        return request.scope
    for tenant in request.tenants:
        if str(tenant.uid) == text:
            return Scope.of(tenant.uid)
    raise NotFound("There is no such tenant.")


def read_question(query: Mapping[str, str]) -> AuditFilter:
    """Read the filters in the URL; `until` includes the whole day."""
    until = _day(query, "until")
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise SchemaViolation("`before` must be the number of an audit event.")
    return AuditFilter(
        actor=_text(query, "actor"),
        action=_text(query, "action"),
        subject=_text(query, "subject"),
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
    yield (",".join(COLUMNS) + "\r\n").encode()
    async for events in pages:
        file = io.StringIO()
        rows = csv.writer(file)
        for event in events:
            rows.writerow([_escape_formula(cell) for cell in _cells(event)])
        yield file.getvalue().encode()


def _cells(event: AuditEvent) -> tuple[object, ...]:
    moment = event.moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    tenant: UUID | str = event.tenant or ""
    return (
        event.number, moment, event.actor.name, event.actor.address or "", str(tenant), event.action, event.subject,
        event.actor.request_id, event.details,
    )  # fmt: skip


def _escape_formula(cell: object) -> str:
    """Return a cell that a spreadsheet does not run as a formula."""
    text = _encode(cell).decode() if isinstance(cell, Mapping) else str(cell)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _shown(value: object) -> str:
    if value is None or value in ("", []):
        return "none"
    if isinstance(value, list):
        text = ", ".join(map(_shown, value))
    else:
        text = value if isinstance(value, str) else _encode(value).decode()
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _text(query: Mapping[str, str], name: str) -> str | None:
    return query.get(name, "").strip().replace("\x00", "") or None


def _day(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError):
        raise SchemaViolation(f"`{name}` is a day such as 2026-11-15.") from None
