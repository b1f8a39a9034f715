"""Writes the matches of a search as CSV or NDJSON, page by page.

Security: subjects and addresses come from hostile messages. A CSV cell that a spreadsheet would run as a formula gets a
leading quotation mark.
"""

import csv
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.console.texts import moment_value
from mailwarden.history.store import Cursor, Row

FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
COLUMNS = (
    "created", "ggrid", "tenantUid", "tenant", "verdict", "decision", "fromName", "fromAddress", "recipients",
    "subject", "tags", "summary",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_encode = msgspec.json.Encoder().encode

TenantName = Callable[[UUID | None], str]


class Stop(Struct, frozen=True):
    """The last line of an export that leaves out matches: they are older than this cursor."""

    older: Cursor

    @property
    def sentence(self) -> str:
        return f"Incomplete: matches older than {self.older.ggrid} are not in this file. Narrow the search or the time."


Blocks = AsyncIterator[Sequence[Row] | Stop]


async def as_ndjson(blocks: Blocks, tenant_name: TenantName) -> AsyncIterator[bytes]:
    async for block in blocks:
        if isinstance(block, Stop):
            yield _encode({"incomplete": True, "message": block.sentence}) + b"\n"
        else:
            yield b"".join(_encode(dict(zip(COLUMNS, _cells(row, tenant_name), strict=True))) + b"\n" for row in block)


async def as_csv(blocks: Blocks, tenant_name: TenantName) -> AsyncIterator[bytes]:
    yield (",".join(COLUMNS) + "\r\n").encode()
    async for block in blocks:
        file = io.StringIO()
        writer = csv.writer(file)
        if isinstance(block, Stop):
            writer.writerow([block.sentence])
        else:
            writer.writerows([_cell(value) for value in _cells(row, tenant_name)] for row in block)
        yield file.getvalue().encode("utf-8", "replace")


def _cells(row: Row, tenant_name: TenantName) -> tuple[str | list[str], ...]:
    return (
        moment_value(row.created), str(row.ggrid), str(row.tenant), tenant_name(row.tenant), row.verdict, row.decision,
        row.from_name, row.from_address, list(row.recipients), row.subject, list(row.tags), row.summary,
    )  # fmt: skip


def _cell(value: str | list[str]) -> str:
    """Return a cell that a spreadsheet does not run as a formula; a line break stays inside its cell."""
    text = " ".join(value) if isinstance(value, list) else value
    return f"'{text}" if text.lstrip(" \n").startswith(_FORMULA) else text
