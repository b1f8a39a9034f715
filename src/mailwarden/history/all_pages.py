"""Reads the matches of a search page by page, up to a number of rows and for a limited time.

The console's export and the messages API share it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from mailwarden.history.store import MAX_ROWS, Cursor, Page

# Returns the page from a cursor on, with at most this many rows.
ReadPage = Callable[[Cursor | None, int], Awaitable[Page]]


async def read_pages(read: ReadPage, first: Page, *, max_rows: int, seconds: float) -> AsyncIterator[Page]:
    """Yield the first page and those after it; the last page has a `next` if matches may be left."""
    clock = asyncio.get_running_loop().time
    page, rows, end = first, 0, clock() + seconds
    while True:
        yield page
        rows += len(page.rows)
        if page.next is None or rows >= max_rows or clock() > end:
            return
        page = await read(page.next, min(MAX_ROWS, max_rows - rows))
