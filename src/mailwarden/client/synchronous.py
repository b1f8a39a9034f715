"""The synchronous client of the List API: runs the asyncio client on its own event loop in a thread."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from mailwarden.client.asynchronous import (
    ADD,
    CALL_SECONDS,
    DELETE,
    AsyncEntryStream,
    AsyncListsClient,
    NewEntry,
    Request,
    Retries,
    Tenant,
    add_requests,
    delete_requests,
)
from mailwarden.client.failures import ApiError
from mailwarden.wire.lists import ListFileInfo, PublicListsEntry

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

    def __iter__(self) -> Iterator[PublicListsEntry]:
        batches = self._stream.batches()

        async def next_batch() -> list[PublicListsEntry] | None:
            return await anext(batches, None)

        while (batch := self._thread.run(next_batch())) is not None:
            yield from batch


class ListsClient:
    """Reads and changes lists with an API key; close it, or use `with`.

    Each method is the synchronous form of the method of `AsyncListsClient`. Several threads may use one client.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        ca: Path | str | None = None,
        retries: Retries = Retries(),  # noqa: B008 -- frozen
        timeout: float = CALL_SECONDS,
    ) -> None:
        self._client = AsyncListsClient(base_url, api_key, ca=ca, retries=retries, timeout=timeout)
        self._thread = _LoopThread()
        self._closed = False

    def lists(self, tenant: Tenant = None) -> tuple[ListFileInfo, ...]:
        """Return all lists of a tenant, or of the global scope, with their metadata."""
        return self._thread.run(self._client.lists(tenant))

    def add(self, list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant = None) -> int:
        """Add or update any number of entries, 500 per call; return the number. See `AsyncListsClient.add`."""
        return self._change(ADD, add_requests(list_name, entries, tenant))

    def delete(self, list_name: str, entries: Iterable[str], tenant: Tenant = None) -> int:
        """Delete any number of entries, 500 per call; return how many existed."""
        return self._change(DELETE, delete_requests(list_name, entries, tenant))

    @contextmanager
    def stream(self, list_name: str, tenant: Tenant = None) -> Iterator[EntryStream]:
        """Open the stream of a list's entries; leaving the context closes it at any point."""
        opening = self._client.stream(list_name, tenant)
        stream = self._thread.run(_enter(opening))
        try:
            yield EntryStream(stream, self._thread)
        finally:
            if not self._closed:  # an unfinished generator may outlive the client, which already closed the stream
                self._thread.run(_leave(opening))

    def entries(self, list_name: str, tenant: Tenant = None) -> Iterator[PublicListsEntry]:
        """Yield every entry of a list; an incomplete stream raises StreamCut."""
        with self.stream(list_name, tenant) as stream:
            yield from stream

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.run(self._client.close())
            self._thread.stop()

    def _change(self, operation: str, requests: Iterable[Request]) -> int:
        # Iterate here, not in the loop's thread: the entries may come from a stream of this client.
        modified = acknowledged = 0
        for request in requests:
            try:
                modified += self._thread.run(self._client.change(operation, request))
            except ApiError as error:
                error.acknowledged = acknowledged
                raise
            acknowledged += request.entries
        return modified

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _leave(opening: AbstractAsyncContextManager[AsyncEntryStream]) -> None:
    await opening.__aexit__(None, None, None)


async def _enter(opening: AbstractAsyncContextManager[AsyncEntryStream]) -> AsyncEntryStream:
    return await opening.__aenter__()
