"""NDJSON: its media type, and whether a caller asks for it."""

from aiohttp import web

NDJSON = "application/x-ndjson"


def accepts_ndjson(request: web.BaseRequest) -> bool:
    accepted = ",".join(request.headers.getall("Accept", ())).split(",")
    return any(each.partition(";")[0].strip().lower() == NDJSON for each in accepted)
