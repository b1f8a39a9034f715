"""A list as a file: streamed as the List API streams it, as NDJSON or as CSV for people with spreadsheets."""

import csv
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from mailwarden.console.list_place import place_of
from mailwarden.console.list_services import ListServices
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.visit import Visit
from mailwarden.errors import NotFound
from mailwarden.lists.files import ALL_COLUMNS, cells_of
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.lists import PublicListsEntry

FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}

Sink = Callable[[bytes], Awaitable[None]]

log = get_logger("console")


class ListExportScreen:
    def __init__(self, services: ListServices) -> None:
        self._lists = services.lists

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/lists/{name}/export/{format}", Right.LISTS_READ, self.export)]

    async def export(self, visit: Visit) -> web.StreamResponse:
        """Stream one snapshot of the list; what goes wrong after the first byte breaks the connection."""
        place, form = place_of(visit), visit.variables["format"]
        if form not in FORMATS:
            raise NotFound("A list is exported as csv or ndjson.")
        name = f'attachment; filename="{place.definition.name}.{form}"'
        response = None
        try:
            async with self._lists.reading(place.scope, place.definition.name) as reading:
                headers = {"Content-Disposition": name, "X-Entry-Count": str(reading.count)}
                response = await visit.begin_stream(FORMATS[form], **headers)
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
            log.warning("export broken", list=place.definition.name, problem=type(error).__name__)
            if visit.call.request.transport is not None:
                visit.call.request.transport.abort()
            raise ConnectionAbortedError("The export was broken off.") from error
        return response


class CsvLines:
    """Turns the lines of a stream into rows of CSV as they come."""

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
    """The reader of a file hung up."""


def _guarded(response: web.StreamResponse) -> Sink:
    async def write(data: bytes) -> None:
        try:
            await response.write(data)
        except ConnectionError as error:  # else it would be taken for the database's
            raise ReaderGone from error

    return write
