"""As much of an S3-compatible store as a vault needs, in this process; it keeps what it was told to keep in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

from aiohttp import web

BUCKET = "held"
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class ObjectStore:
    def __init__(self) -> None:
        self.address = ""
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.full = False
        self.ignores_create = False  # as radosgw with dbstore: `If-None-Match: *` overwrites
        self._uploads: dict[str, dict[int, bytes]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        key, query = request.match_info.get("key", ""), request.query
        self.calls.append(f"{request.method} {sorted(query)}")
        assert request.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=id/")
        body = await request.read()
        if self.full and request.method in ("PUT", "POST"):
            return web.Response(status=507, text="<Error><Code>InsufficientStorage</Code></Error>")
        if request.method == "POST":
            return self._upload(key, query)
        if request.method == "PUT":
            return self._put(request, key, body)
        found = self.objects.get(key)
        if found is None:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return web.Response(body=found, headers={"ETag": '"x"', "Last-Modified": "Sun, 15 Nov 2026 09:00:00 GMT"})

    def _put(self, request: web.Request, key: str, body: bytes) -> web.Response:
        if "uploadId" in request.query:
            self._uploads[request.query["uploadId"]][int(request.query["partNumber"])] = body
        elif request.headers.get("If-None-Match") == "*" and key in self.objects and not self.ignores_create:
            return web.Response(status=412, text="<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self.objects[key] = body
        return web.Response(headers={"ETag": '"x"'})

    def _upload(self, key: str, query: Mapping[str, str]) -> web.Response:
        if "uploads" in query:
            upload = uuid4().hex
            self._uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult {_NAMESPACE}><UploadId>{upload}</UploadId>"
            return web.Response(text=f"{text}</InitiateMultipartUploadResult>", content_type="application/xml")
        parts = self._uploads.pop(query["uploadId"])
        self.objects[key] = b"".join(parts[number] for number in sorted(parts))
        text = f"<CompleteMultipartUploadResult {_NAMESPACE}><ETag>x</ETag></CompleteMultipartUploadResult>"
        return web.Response(text=text, content_type="application/xml")


@asynccontextmanager
async def running_store() -> AsyncIterator[tuple[ObjectStore, str]]:
    """Serve a store on a free port; yield it and its address."""
    store = ObjectStore()
    app = web.Application(client_max_size=100_000_000)
    app.router.add_route("*", f"/{BUCKET}/{{key:.*}}", store.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    try:
        yield store, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
