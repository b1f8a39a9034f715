"""The export of a list as NDJSON or CSV."""

import csv
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.list_form import (
    ListContext,
    read_target,
)
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest
from mailwarden.errors import (
    NotFound,
)
from mailwarden.lists.files import ALL_COLUMNS, cells_of
from mailwarden.lists.requests import PublicListsEntry
from mailwarden.telemetry.logs import get_logger

FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}

Sink = Callable[[bytes], Awaitable[None]]

log = get_logger("console")


class ListExportScreen:
    def __init__(self, context: ListContext) -> None:
        self._list_service = context.list_service

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/lists/{name}/export/{format}", Permission.LISTS_READ, self.export)]

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Stream one snapshot of the list; an error after the first byte aborts the connection."""
        target, form = read_target(request), request.variables["format"]
        if form not in FORMATS:
            raise NotFound("A list is exported as csv or ndjson.")
        name = f'attachment; filename="{target.definition.name}.{form}"'
        response = None
        try:
            async with self._list_service.reading(target.scope, target.definition.name) as reading:
                headers = {"Content-Disposition": name, "X-Entry-Count": str(reading.count)}
                response = await request.begin_stream(FORMATS[form], **headers)
                write = _guarded(response)
                if form == "csv":
                    table = CsvLines(write)
                    await table.begin()
                    await reading.copy_to(table.take)
                else:
                    await reading.copy_to(write)
            await response.write_eof()
        except Exception as error:
            if response is None:
                raise
            log.warning("list_export_broken", list=target.definition.name, reason=type(error).__name__)
            if request.call.request.transport is not None:
                request.call.request.transport.abort()
            raise ConnectionAbortedError("The export was aborted.") from error
        return response


class CsvLines:
    """Converts the NDJSON lines of a stream to CSV rows."""

    def __init__(self, write: Sink) -> None:
        self._write = write
        self._rest = b""
        self._decoder = msgspec.json.Decoder(PublicListsEntry)

    async def begin(self) -> None:
        await self._write((",".join(ALL_COLUMNS) + "\r\n").encode())

    async def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            file = io.StringIO()
            table = csv.writer(file)
            for line in lines:
                table.writerow(cells_of(self._decoder.decode(line)))
            await self._write(file.getvalue().encode())


class ReaderGone(Exception):
    """The client closed the connection during an export."""


def _guarded(response: web.StreamResponse) -> Sink:
    async def write(data: bytes) -> None:
        try:
            await response.write(data)
        except ConnectionError as error:  # otherwise it would look like a database error
            raise ReaderGone from error

    return write
