"""The language of a request, the files of languages, and the formats of times and numbers."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from mailwarden.console.language import (
    ENGLISH,
    BrokenCatalogue,
    Languages,
    counted,
    day_text,
    decimal_text,
    gettext,
    line_time,
    minute_text,
    moment_text,
    number_text,
    preferred_codes,
    read_language,
    sentence_text,
    use_language,
    with_times,
    word_text,
)
from mailwarden.console.services import StatusView
from mailwarden.console.templating import Assets, Templates
from mailwarden.errors import SchemaViolation

HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""
MOMENT = datetime(2026, 11, 17, 19, 45, 12, tzinfo=UTC)


@pytest.fixture
def in_german() -> Iterator[None]:
    use_language(Languages().choose("de"))
    yield
    use_language(ENGLISH)


@pytest.mark.parametrize(
    ("wanted", "header", "code"),
    [
        ("", "", "en"),
        ("de", "", "de"),
        ("", "de-AT,de;q=0.9,en;q=0.8", "de"),
        ("", "fr, en;q=0.5, de;q=0.4", "en"),
        ("en", "de", "en"),
        ("xx", "de", "de"),
        ("", "DE", "de"),
        ("", "de;q=0, en", "en"),
        ("", "*", "en"),
        ("", "de;q=x", "en"),
        ("", "../../etc/passwd", "en"),
    ],
)
def test_the_account_decides_then_the_browser(wanted: str, header: str, code: str) -> None:
    assert Languages().choose(wanted, header).code == code


def test_a_long_header_is_read_in_part() -> None:
    assert len(list(preferred_codes("de," * 10_000))) < 200


def test_languages_name_themselves() -> None:
    assert Languages().choices == [("en", "English"), ("de", "Deutsch")]


def broken(folder: Path, entry: str) -> Path:
    path = folder / "de.po"
    path.write_text(HEADER + "\n" + entry, "utf-8")
    return path


@pytest.mark.parametrize(
    "entry",
    [
        'msgid "%(name)s is held"\nmsgstr "wird zurückgehalten"\n',
        'msgid "%(name)s is held"\nmsgstr "%(nam)s wird zurückgehalten"\n',
        'msgid "held"\nmsgstr "<script>held</script>"\n',
        'msgid "<code>held</code>"\nmsgstr "<a href=x>held</a>"\n',
        'msgid "one"\nmsgid_plural "%(n)s many"\nmsgstr[0] "%(n)s eins"\nmsgstr[1] "viele"\n',
    ],
)
def test_other_placeholders_and_tags_break_a_file(tmp_path: Path, entry: str) -> None:
    with pytest.raises(BrokenCatalogue, match="placeholders or tags"):
        read_language(broken(tmp_path, entry))
    assert Languages(tmp_path).choices == [("en", "English")]


def test_a_file_that_is_none_is_not_offered(tmp_path: Path) -> None:
    (tmp_path / "de.po").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "xx-nothing.po").write_text(HEADER)
    assert Languages(tmp_path).choices == [("en", "English")]


@pytest.mark.usefixtures("in_german")
def test_texts_words_and_numbers_are_german() -> None:
    assert gettext("Messages") == "Nachrichten"
    assert word_text("quarantine") == "Quarantäne"
    assert (counted(1, "entry", "entries"), counted(1200, "entry", "entries")) == ("1 Eintrag", "1.200 Einträge")
    assert (number_text(1234567), decimal_text(0.25), decimal_text(1234.5, 0)) == ("1.234.567", "0,2", "1234")


@pytest.mark.usefixtures("in_german")
def test_times_are_german() -> None:
    assert moment_text(MOMENT) == "17.11.2026, 19:45:12"
    assert minute_text(MOMENT) == "17.11.2026, 19:45"
    assert (day_text(MOMENT), day_text(date(2026, 1, 2))) == ("17.11.2026", "02.01.2026")
    assert moment_text(None) == "nie"
    assert line_time(MOMENT) == '17.11.<span class="mw-line-year">2026</span>, 19:45'


def test_english_times_are_iso() -> None:
    assert (moment_text(MOMENT), minute_text(MOMENT), day_text(MOMENT)) == (
        "2026-11-17 19:45:12",
        "2026-11-17 19:45",
        "2026-11-17",
    )
    assert line_time(MOMENT) == '<span class="mw-line-year">2026-</span>11-17 19:45'


@pytest.mark.usefixtures("in_german")
def test_sentences_of_services_are_translated_with_their_values() -> None:
    assert sentence_text("There is no such tenant.") == "Es gibt keinen solchen Mandanten."
    assert sentence_text("The name `a {1} b` is taken.") == "Der Name `a {1} b` ist vergeben."
    assert sentence_text("A search has at most 500 characters; this one has 700.") == (
        "Eine Suche hat höchstens 500 Zeichen; diese hat 700."
    )
    assert sentence_text("Something nobody knows.") == "Something nobody knows."
    assert sentence_text("") == ""


@pytest.mark.usefixtures("in_german")
def test_values_inside_translations_are_escaped() -> None:
    values = {
        "error": SchemaViolation("The name `<b>` is taken."),
        "error_status": HTTPStatus.BAD_REQUEST,
        "advice": "",
        "request_id": "<i>",
        "notice": "",
    }
    page = Templates(Assets(), lambda: StatusView("GREEN"), Languages()).text("error.html", values)
    assert "Der Name `&lt;b&gt;` ist vergeben." in page
    assert "Anfrage <code>&lt;i&gt;</code>" in page


@pytest.mark.usefixtures("in_german")
def test_times_in_a_sentence_become_elements_and_the_rest_is_escaped() -> None:
    assert with_times("Released to <b>, 2026-11-17 19:45 UTC.") == (
        'Released to &lt;b&gt;, <time datetime="2026-11-17T19:45:00Z" data-form="minute">17.11.2026, 19:45 UTC</time>.'
    )
    assert "9999-99-99 99:99 UTC" in with_times("At 9999-99-99 99:99 UTC.")
