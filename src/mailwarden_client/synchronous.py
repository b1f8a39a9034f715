"""The synchronous client: runs the asyncio client on its own event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from mailwarden_client import requests
from mailwarden_client.asynchronous import AsyncClient, AsyncEntryStream, AsyncMessageStream
from mailwarden_client.errors import ApiError
from mailwarden_client.records import (
    Entry,
    EventPage,
    FoundMessage,
    HeldMessage,
    Json,
    Learning,
    ListFileInfo,
    MessageCount,
    MessagePage,
    Report,
    ScanResult,
    Statistics,
    StreamEnd,
)
from mailwarden_client.requests import Id, NewEntry, Request, Tenant
from mailwarden_client.retries import Retries
from mailwarden_client.transport import CALL_SECONDS

T = TypeVar("T")


class _LoopThread:
    """An event loop in a thread; it works also while another loop runs in the calling thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mailwarden-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C cancels the call in the thread too
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[bool, T | None]:
            try:
                return True, await items.__anext__()
            except StopAsyncIteration:
                return False, None

        while True:
            there, item = self.run(following())
            if not there:
                return
            yield item  # type: ignore[misc]  # there is one

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class EntryStream:
    """The entries of one list in one snapshot, in order; `count` is known before the first."""

    def __init__(self, stream: AsyncEntryStream, thread: _LoopThread) -> None:
        self._stream = stream
        self._thread = thread
        self.count = stream.count
        self.request_id = stream.request_id

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines (NDJSON) as they arrive."""
        return self._thread.iterate(self._stream.blocks())

    def __iter__(self) -> Iterator[Entry]:
        for batch in self._thread.iterate(self._stream.batches()):
            yield from batch


class MessageStream:
    """The messages of a search; `end` says where it ended, and is None before the last message."""

    def __init__(self, stream: AsyncMessageStream, thread: _LoopThread) -> None:
        self._stream = stream
        self._thread = thread
        self.request_id = stream.request_id

    @property
    def end(self) -> StreamEnd | None:
        return self._stream.end

    def __iter__(self) -> Iterator[FoundMessage]:
        for batch in self._thread.iterate(self._stream.batches()):
            yield from batch


class Client:
    """Calls Mailwarden with an API key or a static token; close it, or use `with`.

    Each method is the synchronous form of the method of `AsyncClient`. Several threads may use one client.
    """

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
        self._client = AsyncClient(base_url, api_key, token=token, ca=ca, retries=retries, timeout=timeout)
        self._thread = _LoopThread()
        self._closed = False

    def scan(
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
        work = self._client.scan(
            message,
            sender=sender,
            recipients=recipients,
            remote_address=remote_address,
            helo=helo,
            tenant=tenant,
            idempotency_key=idempotency_key,
        )
        return self._thread.run(work)

    def explain(self, ggrid: Id, tenant: Tenant = None) -> Json:
        """Return why a message was judged as it was, as the JSON object of the API."""
        return self._thread.run(self._client.explain(ggrid, tenant))

    def status(self) -> str:
        """Return GREEN, YELLOW or RED."""
        return self._thread.run(self._client.status())

    def lists(self, tenant: Tenant = None) -> tuple[ListFileInfo, ...]:
        """Return all lists of a tenant, or of the global scope, with their metadata."""
        return self._thread.run(self._client.lists(tenant))

    def add_entries(self, list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant = None) -> int:
        """Add or update any number of entries, 500 per call; return the number. See `AsyncClient.add_entries`."""
        return self._change(requests.add_entries(list_name, entries, tenant))

    def delete_entries(self, list_name: str, entries: Iterable[str], tenant: Tenant = None) -> int:
        """Delete any number of entries, 500 per call; return how many existed."""
        return self._change(requests.delete_entries(list_name, entries, tenant))

    @contextmanager
    def stream_entries(self, list_name: str, tenant: Tenant = None) -> Iterator[EntryStream]:
        """Open the stream of a list's entries; leaving the context closes it at any point."""
        with self._opened(self._client.stream_entries(list_name, tenant)) as stream:
            yield EntryStream(stream, self._thread)

    def entries(self, list_name: str, tenant: Tenant = None) -> Iterator[Entry]:
        """Yield every entry of a list; an incomplete stream raises StreamCut."""
        with self.stream_entries(list_name, tenant) as stream:
            yield from stream

    def search_page(
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
        work = self._client.search_page(
            q, tenant=tenant, since=since, until=until, order=order, after=after, limit=limit
        )
        return self._thread.run(work)

    def search(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "newest",
    ) -> Iterator[FoundMessage]:
        """Yield all matches, page by page; an incomplete page is continued."""
        found = self._client.search(q, tenant=tenant, since=since, until=until, order=order)
        return self._thread.iterate(found)

    @contextmanager
    def stream_messages(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "newest",
        after: str | None = None,
    ) -> Iterator[MessageStream]:
        """Open a stream of up to 100,000 matches in one call; its `end` says where it ended."""
        opening = self._client.stream_messages(q, tenant=tenant, since=since, until=until, order=order, after=after)
        with self._opened(opening) as stream:
            yield MessageStream(stream, self._thread)

    def count(
        self,
        q: str = "",
        *,
        tenant: Tenant = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> MessageCount:
        """Return the number of matches of a search."""
        return self._thread.run(self._client.count(q, tenant=tenant, since=since, until=until))

    def statistics(self, tenant: Tenant = None, first: date | None = None, last: date | None = None) -> Statistics:
        """Return the figures of the days from `first` to `last`; by default of the last seven days."""
        return self._thread.run(self._client.statistics(tenant, first, last))

    def held_messages(
        self,
        *,
        tenant: Tenant = None,
        verdict: str | None = None,
        recipient: str | None = None,
        sender: str | None = None,
        text: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
    ) -> Iterator[HeldMessage]:
        """Yield the messages in quarantine, the newest first; `recipient` and `sender` are addresses or `@domain`."""
        found = self._client.held_messages(
            tenant=tenant, verdict=verdict, recipient=recipient, sender=sender, text=text, state=state, since=since
        )
        return self._thread.iterate(found)

    def held_message(self, uid: Id) -> HeldMessage:
        return self._thread.run(self._client.held_message(uid))

    def download(self, uid: Id) -> bytes:
        """Return the raw bytes of a held message; they may be harmful."""
        return self._thread.run(self._client.download(uid))

    def release(
        self,
        uid: Id,
        recipients: Sequence[str] | None = None,
        *,
        allow: str | None = None,
        everywhere: bool = False,
        learn: bool = False,
    ) -> HeldMessage:
        """Have a held message delivered to all or some recipients. See `AsyncClient.release`."""
        work = self._client.release(uid, recipients, allow=allow, everywhere=everywhere, learn=learn)
        return self._thread.run(work)

    def delete_held(self, uid: Id, recipient: str | None = None, *, block: str | None = None) -> HeldMessage:
        """Delete a held message for all or one recipient; `block` adds the sender to `sender-block`."""
        return self._thread.run(self._client.delete_held(uid, recipient, block=block))

    def report(self, message: bytes, kind: str, tenant: Id) -> Report:
        """Report a raw message as `phishing`, `spam` or `fine`; the tenant learns from it."""
        return self._thread.run(self._client.report(message, kind, tenant))

    def report_message(self, ggrid: Id, kind: str, tenant: Tenant = None, message: bytes | None = None) -> Report:
        """Report a scanned message; the tenant learns from it if its bytes are sent too."""
        return self._thread.run(self._client.report_message(ggrid, kind, tenant, message))

    def reports(self, tenant: Id) -> Iterator[Report]:
        """Yield the reports of a tenant, the newest first."""
        return self._thread.iterate(self._client.reports(tenant))

    def withdraw_report(self, uid: Id) -> None:
        """Undo a report."""
        self._thread.run(self._client.withdraw_report(uid))

    def learning(self, tenant: Id) -> Learning:
        return self._thread.run(self._client.learning(tenant))

    def reset_learning(self, tenant: Id) -> int:
        """Delete all reports of a tenant and what was learned from them; return how many."""
        return self._thread.run(self._client.reset_learning(tenant))

    def event_pages(
        self,
        after: str | None = None,
        *,
        types: Sequence[str] | None = None,
        tenant: Tenant = None,
        follow: bool = False,
    ) -> Iterator[EventPage]:
        """Yield pages of events after a cursor; store `next` after each. See `AsyncClient.event_pages`."""
        return self._thread.iterate(self._client.event_pages(after, types=types, tenant=tenant, follow=follow))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.run(self._client.close())
            self._thread.stop()

    def _change(self, calls: Iterable[Request]) -> int:
        # Iterate here, not in the loop's thread: the entries may come from a stream of this client.
        modified = acknowledged = 0
        for request in calls:
            try:
                modified += self._thread.run(self._client.change(request))
            except ApiError as error:
                error.acknowledged = acknowledged
                raise
            acknowledged += request.entries
        return modified

    @contextmanager
    def _opened(self, opening: AbstractAsyncContextManager[T]) -> Iterator[T]:
        stream = self._thread.run(_enter(opening))
        try:
            yield stream
        finally:
            if not self._closed:  # an unfinished generator may outlive the client, which already closed the stream
                self._thread.run(_leave(opening))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _leave(opening: AbstractAsyncContextManager[Any]) -> None:
    await opening.__aexit__(None, None, None)


async def _enter(opening: AbstractAsyncContextManager[T]) -> T:
    return await opening.__aenter__()
