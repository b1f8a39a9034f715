"""Writes the matches of a search as CSV or NDJSON, page by page."""

from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.console.exports import csv_block, csv_head
from mailwarden.console.texts import moment_value
from mailwarden.history.store import Cursor, Row

COLUMNS = (
    "created", "ggrid", "tenantUid", "tenant", "verdict", "decision", "fromName", "fromAddress", "recipients",
    "subject", "tags", "summary",
)  # fmt: skip
_encode = msgspec.json.Encoder().encode

TenantName = Callable[[UUID | None], str]


class Stop(Struct, frozen=True):
    """The last line of an export that leaves out matches: they are older than this cursor, or newer."""

    place: Cursor
    newer: bool = False

    @property
    def sentence(self) -> str:
        side = "newer" if self.newer else "older"
        return (
            f"Incomplete: matches {side} than {self.place.ggrid} are not in this file. Narrow the search or the time."
        )


Blocks = AsyncIterator[Sequence[Row] | Stop]


async def as_ndjson(blocks: Blocks, tenant_name: TenantName) -> AsyncIterator[bytes]:
    async for block in blocks:
        if isinstance(block, Stop):
            yield _encode({"incomplete": True, "message": block.sentence}) + b"\n"
        else:
            yield b"".join(_encode(dict(zip(COLUMNS, _cells(row, tenant_name), strict=True))) + b"\n" for row in block)


async def as_csv(blocks: Blocks, tenant_name: TenantName) -> AsyncIterator[bytes]:
    yield csv_head(COLUMNS)
    async for block in blocks:
        if isinstance(block, Stop):
            yield csv_block([[block.sentence]])
        else:
            yield csv_block(map(_text, _cells(row, tenant_name)) for row in block)


def _cells(row: Row, tenant_name: TenantName) -> tuple[str | list[str], ...]:
    return (
        moment_value(row.created), str(row.ggrid), str(row.tenant), tenant_name(row.tenant), row.verdict, row.decision,
        row.from_name, row.from_address, list(row.recipients), row.subject, list(row.tags), row.summary,
    )  # fmt: skip


def _text(value: str | list[str]) -> str:
    return " ".join(value) if isinstance(value, list) else value
