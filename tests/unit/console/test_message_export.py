"""Exports of a search: formulas are harmless, and an incomplete file says so."""

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import msgspec
import pytest

from mailwarden.console.message_export import COLUMNS, Stop, as_csv, as_ndjson
from mailwarden.history.store import Cursor, Row
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scope import Scope
from tests.samples.finished import finished_request


async def blocks(*given: Sequence[Row] | Stop) -> AsyncIterator[Sequence[Row] | Stop]:
    for block in given:
        yield block


def row(subject: str) -> Row:
    return msgspec.structs.replace(Row.of(finished_request(), Scope.deployment()), subject=subject)


def name(_: UUID | None) -> str:
    return "=Acme"


@pytest.mark.parametrize("subject", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1"])
async def test_a_spreadsheet_runs_no_cell_as_a_formula(subject: str) -> None:
    text = b"".join([block async for block in as_csv(blocks([row(subject)]), name)]).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == list(COLUMNS)
    cells = dict(zip(COLUMNS, rows[1], strict=True))
    assert cells["subject"] == f"'{subject}"
    assert cells["tenant"] == "'=Acme"
    assert cells["recipients"] == "bob@acme.example eve@acme.example"


async def test_a_line_of_ndjson_is_one_message() -> None:
    lines = b"".join([block async for block in as_ndjson(blocks([row("a\nb"), row("=c")]), name)]).splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["subject"] for record in records] == ["a\nb", "=c"]
    assert list(records[0]) == list(COLUMNS)


async def test_a_file_that_leaves_out_messages_says_so() -> None:
    stop = Stop(Cursor(new_ggrid()))
    table = b"".join([block async for block in as_csv(blocks([row("a")], stop), name)]).decode()
    assert table.splitlines()[-1].startswith("Incomplete: matches older than")
    lines = b"".join([block async for block in as_ndjson(blocks([row("a")], stop), name)]).splitlines()
    assert json.loads(lines[-1])["incomplete"] is True
    assert "matches newer than" in Stop(stop.place, newer=True).sentence
