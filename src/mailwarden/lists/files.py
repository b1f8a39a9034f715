"""Files of list entries: CSV, plain text and NDJSON, and what an import of one would change.

Security: reads feeds of third parties. A line is bounded, an invalid line is reported with its number.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from io import StringIO
from itertools import chain
from pathlib import Path, PurePath
from typing import TextIO

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from mailwarden.errors import EntryTooBroad, InvalidEntry, plain_problem
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.requests import MAX_COMMENT, ListEntryInput, PublicListsEntry

FORMS = ("csv", "ndjson", "txt")
_BY_SUFFIX = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".txt": "txt", ".lst": "txt"}
COLUMNS = ("entry", "comment", "expires")
ALL_COLUMNS = ("entry", "comment", "created", "createdBy", "updated", "updatedBy", "expires", "hits", "lastHit")
_DELIMITERS = ",;\t"  # between the names of a head; spreadsheets of many countries write semicolons
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads cells with these first characters as formulas
_TEXT = "'"  # marks a cell as text
MAX_LINE = 131_072
MAX_SHOWN = 120

# A larger file is sent without comparison, which needs memory for every entry.
MAX_COMPARED = 1_000_000
MAX_KEPT = 1_000


class Row(Struct, frozen=True):
    """One entry of a file and the line that it ends on."""

    line: int
    entry: str
    comment: str | UnsetType = UNSET
    expires: datetime | UnsetType | None = UNSET


class BadRow(Struct, frozen=True):
    """A line that cannot become an entry, and why."""

    line: int
    text: str
    reason: str


def form_of_name(name: str) -> str | None:
    """Return the format of a file by its name, or None."""
    return _BY_SUFFIX.get(PurePath(name).suffix.lower())


def read_rows(file: TextIO, form: str) -> Iterator[Row | BadRow]:
    """Yield every entry, and every line that is none; blank lines are passed over."""
    return _READERS[form](file)


def read_text(text: str, form: str) -> Iterator[Row | BadRow]:
    """Yield the same of a text that is there already."""
    return read_rows(StringIO(text.removeprefix("\ufeff"), newline=""), form)


def open_text(path: Path) -> TextIO:
    # Invalid UTF-8 becomes characters that entries and comments reject, so that the line is reported.
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def write_rows(entries: Iterable[PublicListsEntry], form: str, out: TextIO) -> int:
    """Write the entries and return how many there were."""
    count = 0
    encoder = msgspec.json.Encoder()
    table = csv.writer(out, lineterminator="\n")
    if form == "csv":
        table.writerow(ALL_COLUMNS)
    for entry in entries:
        count += 1
        if form == "txt":
            out.write(entry.entry + "\n")
        elif form == "csv":
            table.writerow(cells_of(entry))
        else:
            out.write(encoder.encode(entry).decode() + "\n")
    return count


def cells_of(entry: PublicListsEntry) -> list[object]:
    """Return an entry as cells that no spreadsheet takes for formulas; reading takes away what marks them so."""
    return [_marked(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in astuple(entry)]


def _marked(cell: str) -> str:
    return _TEXT + cell if cell.lstrip(_TEXT).startswith(FORMULA) else cell


def _unmarked(cell: str) -> str:
    return cell[1:] if cell.startswith(_TEXT) and cell.lstrip(_TEXT).startswith(FORMULA) else cell


def _read_text(file: TextIO) -> Iterator[Row | BadRow]:
    for line, text in _lines(file):
        if text and not text.startswith("#"):
            yield _checked(Row(line, text))


def _read_ndjson(file: TextIO) -> Iterator[Row | BadRow]:
    decoder = msgspec.json.Decoder(ListEntryInput)
    for line, text in _lines(file):
        if not text:
            continue
        try:
            record = decoder.decode(text.encode("utf-8", "surrogateescape"))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield _bad(line, text, f"Not an entry as JSON: {plain_problem(str(error))}")
        else:
            yield _checked(Row(line, record.entry, record.comment, record.expires))


def _read_csv(file: TextIO) -> Iterator[Row | BadRow]:
    lines = _bounded(file)
    first = list(_until_text(lines))
    reader = csv.reader(chain(first, lines), delimiter=_delimiter_of(first[-1]) if first else ",", strict=True)
    columns: tuple[str, ...] = ()
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _bad(reader.line_num, "", f"Not CSV: {error}.")
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if not columns:
            named = tuple(cell.strip().lower() for cell in cells)
            columns = named if "entry" in named else COLUMNS
            if "entry" in named:
                continue
        yield _row_of_cells(reader.line_num, dict(zip(columns, map(_unmarked, cells), strict=False)))


def _until_text(lines: Iterator[str]) -> Iterator[str]:
    """Yield the blank lines in front and the first that is none."""
    for line in lines:
        yield line
        if line.strip():
            return


def _delimiter_of(head: str) -> str:
    """Return what stands between the names of a head, or a comma where there is none."""
    named = (sign for sign in _DELIMITERS if "entry" in (cell.strip(' "\r\n').lower() for cell in head.split(sign)))
    return next(named, ",")


def _row_of_cells(line: int, cells: Mapping[str, str]) -> Row | BadRow:
    """Return the row; a cell that is empty or missing says nothing about its field."""
    comment = cells.get("comment", "")
    expires: datetime | UnsetType = UNSET
    if when := cells.get("expires", "").strip():
        try:
            expires = read_moment(when)
        except ValueError as error:
            return _bad(line, cells.get("entry", ""), str(error))
    return _checked(Row(line, cells.get("entry", ""), comment or UNSET, expires))


def read_moment(text: str) -> datetime:
    """Return a time with its zone; a date is its first moment in UTC."""
    try:
        moment = datetime.fromisoformat(text if len(text) > 10 else f"{text}T00:00:00Z")
    except ValueError:
        raise ValueError(f"`{text[:40]}` is no time such as 2027-01-31T12:00:00Z.") from None
    if moment.tzinfo is None:
        raise ValueError(f"`{text[:40]}` has no time zone: write Z or an offset after it.")
    return moment


def _lines(file: TextIO) -> Iterator[tuple[int, str]]:
    for line, text in enumerate(_bounded(file), 1):
        yield line, text.rstrip("\r\n")


def _bounded(file: TextIO) -> Iterator[str]:
    """Yield the lines; too long ones are cut, and rejected later because no entry is that long."""
    while text := file.readline(MAX_LINE):
        yield text
        while len(text) == MAX_LINE and not text.endswith(("\n", "\r")):
            text = file.readline(MAX_LINE)


def _checked(row: Row) -> Row | BadRow:
    comment = row.comment
    if comment is not UNSET:
        if len(comment) > MAX_COMMENT:
            return _bad(row.line, row.entry, f"The comment has more than {MAX_COMMENT:,} characters.")
        if "\x00" in comment or any("\ud800" <= sign <= "\udfff" for sign in comment):
            return _bad(row.line, row.entry, "The comment is not UTF-8, or holds a NUL.")
    return row


def _bad(line: int, text: str, reason: str) -> BadRow:
    return BadRow(line, text[:MAX_SHOWN].encode("utf-8", "replace").decode(), reason)


_READERS: Mapping[str, Callable[[TextIO], Iterator[Row | BadRow]]] = {
    "csv": _read_csv,
    "ndjson": _read_ndjson,
    "txt": _read_text,
}


class Survey(Struct):
    """A file read through: its valid entries in stored form, each with its last row, and what is wrong with it."""

    rows: int = 0
    invalid: int = 0
    mistakes: list[BadRow] = msgspec.field(default_factory=list)
    last: dict[str, Row] | None = msgspec.field(default_factory=dict)

    @property
    def repeated(self) -> int:
        return 0 if self.last is None else self.rows - len(self.last)


class Plan(Struct, frozen=True):
    """The result of a comparison; `lines_to_send` is None to send everything, else the line of each entry to send."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    gone: tuple[str, ...] = ()
    lines_to_send: dict[str, int] | None = None

    def sends(self, row: Row) -> bool:
        return self.lines_to_send is None or self.lines_to_send.get(row.entry) == row.line


def normalised(
    definition: ListDefinition, rows: Iterable[Row | BadRow], comment: str | None, expires: datetime | None
) -> Iterator[Row | BadRow]:
    """Yield the rows with their entries as they are stored, and a comment and a time for those that have none."""
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            entry = definition.normalise(row.entry)
        except (InvalidEntry, EntryTooBroad) as error:
            shown = row.entry[:120].encode("utf-8", "replace").decode()
            yield BadRow(row.line, shown, error.message)
            continue
        row_comment = comment if row.comment is UNSET and comment is not None else row.comment
        end = expires if row.expires is UNSET and expires is not None else row.expires
        yield Row(row.line, entry, row_comment, end)


def survey(rows: Iterable[Row | BadRow], most: int = MAX_COMPARED) -> Survey:
    """Read a file through; with more than `most` different entries, they are counted and no longer held."""
    file_survey = Survey()
    for row in rows:
        if isinstance(row, BadRow):
            file_survey.invalid += 1
            if len(file_survey.mistakes) < MAX_KEPT:
                file_survey.mistakes.append(row)
            continue
        file_survey.rows += 1
        if file_survey.last is not None:
            file_survey.last[row.entry] = row
            if len(file_survey.last) > most:
                file_survey.last = None
    return file_survey


def compare(rows: dict[str, Row], present: Iterable[PublicListsEntry], prune: str | None = None) -> Plan:
    """Count new, changed and unchanged entries; those with the comment `prune` that the file lacks are gone."""
    lines_to_send = {entry: row.line for entry, row in rows.items()}
    changed = unchanged = 0
    gone: list[str] = []
    for present_entry in present:
        row = rows.get(present_entry.entry)
        if row is None:
            if prune is not None and present_entry.comment == prune:
                gone.append(present_entry.entry)
        elif changes(row, present_entry):
            changed += 1
        else:
            unchanged += 1
            del lines_to_send[present_entry.entry]
    return Plan(len(rows) - changed - unchanged, changed, unchanged, tuple(gone), lines_to_send)


def changes(row: Row, present: PublicListsEntry) -> bool:
    """Return whether the row would change the present entry."""
    if row.comment is not UNSET and row.comment != present.comment:
        return True
    return row.expires is not UNSET and _moment(row.expires) != _moment(present.expires)


def _moment(value: datetime | UnsetType | str | None) -> datetime | None:
    """Return a time as it is stored: to the millisecond."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        return None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
