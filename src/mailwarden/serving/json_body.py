"""Receives a JSON body whole, under a hard limit.

Security: reads hostile bytes. The size is refused before the body is read where it is declared, and while it streams
where it is not; a sender that dawdles is cut off.
"""

from aiohttp import web

from mailwarden.errors import UnsupportedMediaType
from mailwarden.serving.uploads import BodyClock, grant_body, is_json, too_large
from mailwarden.wire.query import refuse_query


async def receive_json(request: web.BaseRequest, *, max_body: int, body_timeout_ms: int) -> bytes:
    """Return the bytes of the body, once its head said that it is JSON of a size that fits."""
    if (request.content_length or 0) > max_body:
        raise too_large(max_body)
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("The body must not be compressed.")
    kinds = request.headers.getall("Content-Type", [])
    if len(kinds) != 1 or not is_json(kinds[0]):
        raise UnsupportedMediaType("The body must be JSON in UTF-8: send one header `Content-Type: application/json`.")
    refuse_query(request.query)
    await grant_body(request)
    chunks: list[bytes] = []
    async with BodyClock(body_timeout_ms, max_body) as clock:
        while chunk := await clock.next_chunk(request):
            chunks.append(chunk)
    return b"".join(chunks)
