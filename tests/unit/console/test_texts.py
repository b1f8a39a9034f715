"""How values read: links that nobody can follow, sizes, times."""

from datetime import UTC, datetime

import pytest

from mailwarden.console.language import moment_text
from mailwarden.console.texts import COLOURS, file_size, moment_value, visible
from mailwarden.message.urls import defang
from mailwarden.model.outcome import Decision, Verdict


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://evil.example/a.b?c=d.e", "hxxps://evil[.]example/a.b?c=d.e"),
        ("HTTP://Evil.example", "HxxP://Evil[.]example"),
        ("evil.example", "evil[.]example"),
        ("https://user@evil.example/", "hxxps://user[@]evil[.]example/"),
        ("alice@evil.example", "alice[@]evil[.]example"),
        ("ftp://evil.example/x", "ftp://evil[.]example/x"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("", ""),
    ],
)
def test_a_link_is_shown_so_that_it_cannot_be_followed(address: str, shown: str) -> None:
    assert defang(address) == shown


def test_every_verdict_and_decision_has_a_colour() -> None:
    assert {*Verdict, *Decision} <= set(COLOURS)


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (52_428_800, "50.0 MiB")])
def test_a_size_is_in_the_unit_that_suits_it(size: int, shown: str) -> None:
    assert file_size(size) == shown


def test_times_are_in_utc() -> None:
    moment = datetime.fromisoformat("2026-11-15T07:00:01+02:00")
    assert moment_text(moment) == "2026-11-15 05:00:01"
    assert moment_value(moment) == "2026-11-15T05:00:01Z"
    assert moment_text(None) == "never"
    assert moment_value(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("invoice\u202efdp.exe", "invoice[U+202E]fdp.exe"),
        ("\u2066a\u2069 \u202bb\u202c", "[U+2066]a[U+2069] [U+202B]b[U+202C]"),
        ("\u05e9\u05dc\u05d5\u05dd \u200f(1)", "\u05e9\u05dc\u05d5\u05dd \u200f(1)"),
        ("", ""),
        (None, ""),
    ],
)
def test_direction_controls_are_shown_as_text(text: str | None, shown: str) -> None:
    assert visible(text) == shown
