"""A webhook receiver as a process of its own: `python receiver_process.py PORT FOLDER`.

It stores an event in `FOLDER/stored` before it answers. `FOLDER/mode` says how it answers: `well`, `error` (503),
`hang` (no answer), `cut` (the connection ends without an answer), or `forget N`: it stores N more events and cuts the
connections.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
from aiohttp import web


class ReceiverProcess:
    def __init__(self, folder: Path) -> None:
        self._mode = folder / "mode"
        self._stored = (folder / "stored").open("ab", buffering=0)
        self._forgotten = 0

    async def take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        mode, _, number = self._mode.read_text("ascii").partition(" ")
        if mode == "error":
            return web.Response(status=503)
        if mode == "hang":
            await asyncio.sleep(60)
        if mode == "cut":
            return self._cut(request)
        event = msgspec.json.decode(body)
        assert event["id"] == request.headers["webhook-id"]
        self._stored.write(msgspec.json.encode([event["id"], event["subject"], int(event["data"]["name"])]) + b"\n")
        if mode == "forget" and self._forgotten < int(number):
            self._forgotten += 1
            return self._cut(request)
        return web.Response(status=204)

    def _cut(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    app = web.Application()
    app.router.add_post("/hook", ReceiverProcess(folder).take)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main()
