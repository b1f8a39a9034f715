"""The asyncio client: one method for each call of the APIs. `synchronous.py` is made from this file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TypeVar, cast

import aiohttp

from mailwarden_client import requests
from mailwarden_client.errors import ApiError, unreadable
from mailwarden_client.records import (
    Entry,
    EventPage,
    HeldMessage,
    Json,
    ListFileInfo,
    MessageCount,
    MessagePage,
    Report,
    ScanResult,
    SearchResult,
    Statistics,
    StreamEnd,
    Training,
    decode,
)
from mailwarden_client.requests import Id, NewEntry, Request, Search, Tenant
from mailwarden_client.retries import Retries
from mailwarden_client.transport import CALL_SECONDS, MAX_DOWNLOAD, Transport, authorization, stream_cut

_T = TypeVar("_T")
FOLLOW_SECONDS = 25  # one call waits so long for an event


class AsyncEntryStream:
    """The entries of one list in one snapshot, in order; `count` is known before the first."""

    def __init__(self, transport: Transport, response: aiohttp.ClientResponse) -> None:
        self._transport = transport
        self._response = response
        self.request_id = response.headers.get("X-Request-Id", "")
        self.count = _entry_count(response.headers.get("X-Entry-Count", ""))

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield blocks of whole lines (NDJSON) as they arrive; raise StreamCut unless all `count` of them arrived."""
        came = 0
        async for block in self._transport.lines(self._response):
            came += block.count(b"\n")
            yield block
        if came != self.count:
            raise stream_cut(self._response, f"{came:,} entries came, {self.count:,} were announced")

    async def batches(self) -> AsyncIterator[list[Entry]]:
        """Yield the entries in batches as they arrive; raise StreamCut unless all `count` of them arrived."""
        async for block in self.blocks():
            try:
                batch = [decode(Entry, json.loads(line)) for line in block.splitlines()]
            except ValueError as error:
                raise stream_cut(self._response, f"a line cannot be read ({error})") from None
            yield batch

    async def __aiter__(self) -> AsyncIterator[Entry]:
        async for batch in self.batches():
            for entry in batch:
                yield entry


class AsyncMessageStream:
    """The messages of a search; `end` says where it ended, and is None before the last message."""

    def __init__(self, transport: Transport, response: aiohttp.ClientResponse) -> None:
        self._transport = transport
        self._response = response
        self.request_id = response.headers.get("X-Request-Id", "")
        self.end: StreamEnd | None = None

    async def batches(self) -> AsyncIterator[list[SearchResult]]:
        """Yield the messages in batches as they arrive; raise StreamCut if the last line is missing."""
        async for block in self._transport.lines(self._response):
            try:
                lines = [json.loads(line) for line in block.splitlines()]
                ends = bool(lines) and "end" in lines[-1]
                batch = [decode(SearchResult, each) for each in (lines[:-1] if ends else lines)]
                self.end = decode(StreamEnd, lines[-1]) if ends else None
            except (ValueError, TypeError) as error:
                raise stream_cut(self._response, f"a line cannot be read ({error})") from None
            yield batch
        if self.end is None:
            raise stream_cut(self._response, "its last line is missing")

    async def __aiter__(self) -> AsyncIterator[SearchResult]:
        async for batch in self.batches():
            for message in batch:
                yield message


class AsyncClient:
    """Calls Mailwarden with an API key or a static token; close it, or use `async with`."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        token: str | None = None,
        ca: Path | str | None = None,
        retries: Retries = Retries(),  # noqa: B008 -- frozen
        timeout: float = CALL_SECONDS,
    ) -> None:
        credential = authorization(api_key, token)
        self._transport = Transport(base_url, credential, ca=ca, retries=retries, timeout=timeout)

    async def scan(
        self,
        message: bytes,
        *,
        sender: str,
        recipients: Sequence[str],
        remote_address: str | None = None,
        helo: str | None = None,
        tenant: Tenant = None,
        idempotency_key: str | None = None,
    ) -> ScanResult:
        """Submit a raw message with its envelope and wait for the result; `remote_address` is the sending MTA."""
        request = requests.submit(
            message,
            sender,
            recipients,
            remote_address=remote_address,
            helo=helo,
            tenant=tenant,
            idempotency_key=idempotency_key,
        )
        return await self._transport.record(request, ScanResult)

    async def explain(self, ggrid: Id, tenant: Tenant = None) -> Json:
        """Return why a message has its verdict, as the JSON object of the API."""
        return await self._object(requests.explanation(ggrid, tenant))

    async def status(self) -> str:
        """Return GREEN, YELLOW or RED."""
        return await self._member(requests.status(), "messageQueueStatus", str)

    async def lists(self, tenant: Tenant = None) -> tuple[ListFileInfo, ...]:
        """Return all lists of a tenant, or of the global scope, with their metadata."""
        return await self._field(requests.lists(tenant), "listFileInfos", ListFileInfo)

    async def add_entries(self, list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant = None) -> int:
        """Add or update any number of entries, 500 per call; return the number that was added or updated.

        Each call is atomic, but all calls together are not: if one fails, the error's `acknowledged` has the number of
        entries before it. An entry in two calls counts twice.
        """
        return await self._change(requests.add_entries(list_name, entries, tenant))

    async def delete_entries(self, list_name: str, entries: Iterable[str], tenant: Tenant = None) -> int:
        """Delete any number of entries, 500 per call; return how many existed. See `add_entries` and `Retries`."""
        return await self._change(requests.delete_entries(list_name, entries, tenant))

    @asynccontextmanager
    async def stream_entries(self, list_name: str, tenant: Tenant = None) -> AsyncIterator[AsyncEntryStream]:
        """Open the stream of a list's entries; leaving the context closes it at any point."""
        async with self._transport.stream(requests.entries(list_name, tenant)) as response:
            yield AsyncEntryStream(self._transport, response)

    async def entries(self, list_name: str, tenant: Tenant = None) -> AsyncIterator[Entry]:
        """Yield every entry of a list; an incomplete stream raises StreamCut."""
        async with self.stream_entries(list_name, tenant) as stream:
            async for entry in stream:
                yield entry

    async def search_page(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "newest",
        after: str | None = None,
        limit: int = 100,
    ) -> MessagePage:
        """Return one page of a search, in the language of the console."""
        request = requests.messages(Search(q, tenant, since, until), order, after, limit)
        return await self._transport.record(request, MessagePage)

    async def search(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "newest",
    ) -> AsyncIterator[SearchResult]:
        """Yield all matches, page by page; an incomplete page is continued."""
        asked, after = Search(q, tenant, since, until), None
        while True:
            page = await self._transport.record(requests.messages(asked, order, after), MessagePage)
            for message in page.messages:
                yield message
            if page.next is None:
                return
            after = page.next

    @asynccontextmanager
    async def stream_messages(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "newest",
        after: str | None = None,
    ) -> AsyncIterator[AsyncMessageStream]:
        """Open a stream of up to 100,000 matches in one call; its `end` says where it ended."""
        request = requests.message_stream(Search(q, tenant, since, until), order, after)
        async with self._transport.stream(request) as response:
            yield AsyncMessageStream(self._transport, response)

    async def count(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> MessageCount:
        """Return the number of matches of a search."""
        return await self._transport.record(requests.count(Search(q, tenant, since, until)), MessageCount)

    async def statistics(
        self, tenant: Tenant = None, first: date | None = None, last: date | None = None
    ) -> Statistics:
        """Return the figures of the days from `first` to `last`; by default of the last seven days."""
        return await self._transport.record(requests.statistics(tenant, first, last), Statistics)

    async def held_messages(
        self,
        *,
        tenant: Tenant = None,
        verdict: str | None = None,
        recipient: str | None = None,
        sender: str | None = None,
        text: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
    ) -> AsyncIterator[HeldMessage]:
        """Yield the messages in quarantine, the newest first; `recipient` and `sender` are addresses or `@domain`."""
        filters: dict[str, object] = {
            "tenantUid": tenant, "verdict": verdict, "recipient": recipient, "sender": sender, "text": text,
            "state": state, "since": since,
        }  # fmt: skip
        after: Id | None = None
        while True:
            page = await self._field(requests.held_messages(filters, after), "messages", HeldMessage)
            for message in page:
                yield message
            if not page:
                return
            after = page[-1].uid

    async def held_message(self, uid: Id) -> HeldMessage:
        return await self._transport.record(requests.held_message(uid), HeldMessage)

    async def download(self, uid: Id) -> bytes:
        """Return the raw bytes of a held message; they may be harmful."""
        return await self._transport.body(requests.download(uid), MAX_DOWNLOAD)

    async def release(
        self,
        uid: Id,
        recipients: Sequence[str] | None = None,
        *,
        allow: str | None = None,
        global_list: bool = False,
        train: bool = False,
    ) -> HeldMessage:
        """Have a held message delivered to all or some recipients; a guard does it within seconds.

        `allow` ("address" or "domain") adds the sender to `sender-allow`, with `global_list` to the global list.
        """
        request = requests.release(uid, recipients, allow, global_list=global_list, train=train)
        return await self._transport.record(request, HeldMessage)

    async def delete_held(self, uid: Id, recipient: str | None = None, *, block: str | None = None) -> HeldMessage:
        """Delete a held message for all or one recipient; `block` adds the sender to `sender-block`."""
        return await self._transport.record(requests.delete_held(uid, recipient, block), HeldMessage)

    async def report(self, message: bytes, kind: str, tenant: Id) -> Report:
        """Report a raw message as `phishing`, `spam` or `good`; it trains the tenant's filter."""
        return await self._transport.record(requests.report(message, kind, tenant), Report)

    async def report_message(self, ggrid: Id, kind: str, tenant: Tenant = None, message: bytes | None = None) -> Report:
        """Report a scanned message; it trains the tenant's filter if its bytes are sent too."""
        return await self._transport.record(requests.report_message(ggrid, kind, tenant, message), Report)

    async def reports(self, tenant: Id) -> AsyncIterator[Report]:
        """Yield the reports of a tenant, the newest first."""
        before, uid = None, None
        while True:
            page = await self._field(requests.reports(tenant, before, uid), "reports", Report)
            for each in page:
                yield each
            if not page:
                return
            before, uid = page[-1].reported_at, page[-1].uid

    async def withdraw_report(self, uid: Id) -> None:
        """Undo a report."""
        await self._transport.body(requests.withdraw_report(uid))

    async def training(self, tenant: Id) -> Training:
        return await self._transport.record(requests.training(tenant), Training)

    async def reset_training(self, tenant: Id) -> int:
        """Delete all reports of a tenant and the statistics trained from them; return how many."""
        return await self._member(requests.reset_training(tenant), "deleted", int)

    async def event_pages(
        self,
        after: str | None = None,
        *,
        types: Sequence[str] | None = None,
        tenant: Tenant = None,
        follow: bool = False,
    ) -> AsyncIterator[EventPage]:
        """Yield pages of events after a cursor: `next` of a page, "latest", or None for the oldest event that is kept.

        Store `next` after you have handled a page: a program that starts again from there loses no event. A page may be
        empty, because the service looks at a limited number of events of other types and tenants for each page; its
        `next` counts too. With `follow` it waits for new events and never ends; else it ends with the newest event.
        """
        while True:
            # "latest" in a repeated call would be a later place: fetch a cursor at once, then wait behind it.
            wait = FOLLOW_SECONDS if follow and after != "latest" else 0
            page = await self._transport.record(requests.events(after, types, tenant, wait), EventPage)
            yield page
            if not page.more and not follow:
                return
            after = page.next

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _change(self, calls: Iterable[Request]) -> int:
        modified = acknowledged = 0
        for request in calls:
            try:
                modified += await self._member(request, "modifiedEntries", int)
            except ApiError as error:
                error.acknowledged = acknowledged
                raise
            acknowledged += request.entries
        return modified

    async def _object(self, request: Request) -> Json:
        return await self._transport.record(request, Mapping[str, object])  # type: ignore[type-abstract]

    async def _member(self, request: Request, name: str, kind: type[_T]) -> _T:
        """Return one field of the response."""
        found = (await self._object(request)).get(name)
        if type(found) is not kind:
            raise unreadable(f"its `{name}` is missing or wrong")
        return found

    async def _field(self, request: Request, name: str, kind: type[_T]) -> tuple[_T, ...]:
        """Return the records in one field of the response."""
        found = (await self._object(request)).get(name)
        try:
            return tuple(decode(kind, each) for each in cast("list[object]", found))
        except (ValueError, TypeError) as error:
            raise unreadable(f"it is not what this call answers ({error})") from None


def _entry_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise unreadable("it has no X-Entry-Count, which is needed to detect a truncated stream")
    return int(text)
