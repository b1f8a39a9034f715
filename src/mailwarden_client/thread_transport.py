"""The transport of the synchronous client: runs the asyncio transport on its own event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from mailwarden_client.requests import Request
from mailwarden_client.retries import Retries
from mailwarden_client.transport import MAX_ANSWER, Transport

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


class ThreadTransport:
    """The methods of `Transport` without `async`. Several threads may use one."""

    def __init__(
        self,
        base_url: str,
        authorization: str,
        *,
        ca: Path | str | None,
        retries: Retries,
        timeout: float,
    ) -> None:
        self._transport = Transport(base_url, authorization, ca=ca, retries=retries, timeout=timeout)
        self._thread = _LoopThread()
        self._closed = False

    def record(self, request: Request, kind: type[T]) -> T:
        return self._thread.run(self._transport.record(request, kind))

    def body(self, request: Request, limit: int = MAX_ANSWER) -> bytes:
        return self._thread.run(self._transport.body(request, limit))

    @contextmanager
    def stream(self, request: Request) -> Iterator[aiohttp.ClientResponse]:
        opening = self._transport.stream(request)
        response = self._thread.run(_enter(opening))
        try:
            yield response
        finally:
            if not self._closed:  # an unfinished generator may outlive the client, which already closed the stream
                self._thread.run(_leave(opening))

    def lines(self, response: aiohttp.ClientResponse) -> Iterator[bytes]:
        return self._thread.iterate(self._transport.lines(response))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.run(self._transport.close())
            self._thread.stop()


async def _leave(opening: AbstractAsyncContextManager[Any]) -> None:
    await opening.__aexit__(None, None, None)


async def _enter(opening: AbstractAsyncContextManager[T]) -> T:
    return await opening.__aenter__()
