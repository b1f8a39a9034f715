"""Files that users export from a screen, as CSV or NDJSON, streamed block by block.

Security: the cells come from hostile messages and from callers. A cell that a spreadsheet would run as a formula gets a
leading quotation mark.
"""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from aiohttp import web

from mailwarden.console.request import UserRequest
from mailwarden.errors import NotFound
from mailwarden.lists.files import FORMULA

FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}


def format_in(request: UserRequest, what: str) -> str:
    """Return the format in the URL, or raise NotFound."""
    form = request.variables["format"]
    if form not in FORMATS:
        raise NotFound(f"{what} exported as csv or ndjson.")
    return form


async def send_file(request: UserRequest, name: str, form: str, blocks: AsyncIterator[bytes]) -> web.StreamResponse:
    """Stream the blocks as a file that the browser saves."""
    disposition = f'attachment; filename="{name}.{form}"'
    response = await request.begin_stream(FORMATS[form], **{"Content-Disposition": disposition})
    async for block in blocks:
        await response.write(block)
    await response.write_eof()
    return response


def csv_head(columns: Sequence[str]) -> bytes:
    return (",".join(columns) + "\r\n").encode()


def csv_block(rows: Iterable[Iterable[str]]) -> bytes:
    """Return rows of a CSV file, without formulas; a line break stays inside its cell."""
    file = io.StringIO()
    csv.writer(file).writerows(map(escape_formula, row) for row in rows)
    return file.getvalue().encode("utf-8", "replace")


def escape_formula(text: str) -> str:
    """Return a cell that a spreadsheet does not run as a formula."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text
