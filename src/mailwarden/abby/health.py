"""GET /healthz and GET /readyz: alive, and ready for work; without credentials, and telling nothing more."""

from collections.abc import Callable

from aiohttp import web

from mailwarden.serving.front_door import Call


class Health:
    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready

    async def show_alive(self, call: Call) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def show_ready(self, call: Call) -> web.StreamResponse:
        return web.Response(text="ok\n") if self._is_ready() else web.Response(status=503, text="not ready\n")
