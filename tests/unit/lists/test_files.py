"""Files of list entries are read with the line of every mistake, and written so that they can be read again."""

import io
from datetime import UTC, datetime

import pytest
from msgspec import UNSET

from mailwarden.cli.lists_import import form_of
from mailwarden.errors import CommandError
from mailwarden.lists.files import BadRow, Row, open_text, read_rows, write_rows
from mailwarden.lists.requests import PublicListsEntry

MOMENT = datetime(2027, 1, 31, 12, tzinfo=UTC)


def rows(text: str, form: str) -> list[Row | BadRow]:
    return list(read_rows(io.StringIO(text, newline=""), form))


def test_plain_text_has_an_entry_a_line_with_blank_lines_and_remarks_passed_over():
    assert rows("# feed\r\na.example\r\n\r\nb.example", "txt") == [Row(2, "a.example"), Row(4, "b.example")]


def test_csv_with_a_head_is_read_by_its_names():
    text = 'Comment,Entry,Expires\n"one, two",a.example,2027-01-31T12:00:00Z\n,b.example,\n'
    assert rows(text, "csv") == [Row(2, "a.example", "one, two", MOMENT), Row(3, "b.example")]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_csv_of_a_spreadsheet_that_writes_no_commas_is_read_by_its_head(sign):
    lines = ['"Entry"|Comment|Expires', "a.example|one, two|", "b.example||2027-01-31T12:00:00Z"]
    text = "\r\n" + "\r\n".join(lines).replace("|", sign)
    assert rows(text, "csv") == [Row(3, "a.example", "one, two"), Row(4, "b.example", UNSET, MOMENT)]
    assert rows("pay now; or else\n", "csv") == [Row(1, "pay now; or else")], "without a head nothing is guessed"


def test_csv_without_a_head_has_entry_comment_and_expiry_in_this_order():
    assert rows("a.example\nb.example,why\nc.example,,2027-01-31T12:00:00Z\n", "csv") == [
        Row(1, "a.example"),
        Row(2, "b.example", "why"),
        Row(3, "c.example", UNSET, MOMENT),
    ]


def test_a_cell_may_go_over_lines_and_the_number_is_that_of_its_last():
    assert rows('entry,comment\na.example,"one\ntwo"\nb.example,\n', "csv") == [
        Row(3, "a.example", "one\ntwo"),
        Row(4, "b.example"),
    ]


def test_malformed_csv_is_reported_with_its_line():
    first, second = rows('entry,comment\na.example,"x" y\nb.example,\n', "csv")
    assert isinstance(first, BadRow)
    assert first.line == 2
    assert second == Row(3, "b.example")


def test_ndjson_takes_the_lines_of_an_export_and_bare_entries():
    exported = io.StringIO()
    write_rows([entry("a.example", "why", "2027-01-31T12:00:00.000Z")], "ndjson", exported)

    read = rows(exported.getvalue() + '{"entry":"b.example"}\n{"entry":"c.example","expires":null}\n', "ndjson")

    assert read == [Row(1, "a.example", "why", MOMENT), Row(2, "b.example"), Row(3, "c.example", UNSET, None)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('"a.example"', "must be an object, not a string"),
        ("{", "truncated"),
        ('{"entry":7}', "must be a string, not an integer"),
        ('{"entry":"a","coment":"typo"}', "has the unknown field `coment`"),
        ('{"comment":"x"}', "lacks the required field `entry`"),
    ],
)
def test_an_invalid_ndjson_entry_is_reported_with_its_line(line, problem):
    bad, good = rows(f'{line}\n{{"entry":"b.example"}}\n', "ndjson")
    assert isinstance(bad, BadRow)
    assert problem in bad.reason
    assert (bad.line, good) == (1, Row(2, "b.example"))


@pytest.mark.parametrize("expires", ["tomorrow", "2027-01-31T12:00:00", "2027-13-01"])
def test_an_invalid_time_is_reported(expires):
    (bad,) = rows(f"a.example,,{expires}\n", "csv")
    assert isinstance(bad, BadRow)


def test_a_long_or_non_utf8_comment_is_reported(tmp_path):
    path = tmp_path / "feed.csv"
    path.write_bytes(b"\xef\xbb\xbfentry,comment\na.example,caf\xe9\nb.example," + b"x" * 1025 + b"\nc.example,fine\n")
    with open_text(path) as file:
        first, second, third = read_rows(file, "csv")
    assert isinstance(first, BadRow)
    assert isinstance(second, BadRow)
    assert third == Row(4, "c.example", "fine")


@pytest.mark.parametrize("form", ["txt", "ndjson", "csv"])
def test_a_line_without_end_is_cut_and_the_next_one_keeps_its_number(form):
    good = '{"entry":"b.example"}' if form == "ndjson" else "b.example"
    last = rows(f"{'x' * 400_000}\n{good}\n", form)[-1]
    assert last == Row(2, "b.example")


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_written_file_is_read_back(form):
    comment = 'a "quoted", strange\ncomment'
    out = io.StringIO()
    assert write_rows([entry('say "now", please', comment, None)], form, out) == 1
    (row,) = rows(out.getvalue(), form)
    assert isinstance(row, Row)
    assert (row.entry, row.comment) == ('say "now", please', comment)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-50 % off", "@all", "'=1", "''-1", "'tis", "''", "\tx", "plain"])
def test_no_cell_is_a_formula_and_every_cell_is_read_as_it_was(text):
    out = io.StringIO()
    write_rows([entry(text, text, None)], "csv", out)
    assert not out.getvalue().splitlines()[1].startswith(("=", "+", "-", "@", "\t", '"\t'))
    (row,) = rows(out.getvalue(), "csv")
    assert isinstance(row, Row)
    assert (row.entry, row.comment) == (text, text)


def test_the_format_follows_the_file_name_or_the_option():
    assert form_of("feed.CSV", None) == "csv"
    assert form_of("feed.jsonl", None) == "ndjson"
    assert form_of("-", "txt") == "txt"
    with pytest.raises(CommandError, match="--format"):
        form_of("feed", None)


def entry(text: str, comment: str, expires: str | None) -> PublicListsEntry:
    moment = "2026-01-01T00:00:00.000Z"
    return PublicListsEntry(text, comment, moment, "key:a", moment, "key:a", expires, 0, None)
