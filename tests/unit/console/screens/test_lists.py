"""A value to check may be written as a term of the message search."""

import pytest

from mailwarden.console.screens.lists import read_value


@pytest.mark.parametrize(
    ("text", "reading", "expected"),
    [
        ("evil.example", "", ("evil.example", "")),
        ("from:a@evil.example", "", ("a@evil.example", "sender")),
        (" from:evil.example ", "", ("evil.example", "domain")),
        ("to:bob@acme.example", "", ("bob@acme.example", "recipient")),
        ("domain:evil.example", "", ("evil.example", "domain")),
        ("ip:192.0.2.7", "", ("192.0.2.7", "ip")),
        ("url:https://evil.example/a", "", ("https://evil.example/a", "url")),
        ('subject:"gift card"', "", ("gift card", "subject")),
        ("https://evil.example/a", "", ("https://evil.example/a", "")),
        ("subject:x", "name", ("subject:x", "name")),
        ("tag:x", "", ("tag:x", "")),
        ("-from:a@evil.example", "", ("-from:a@evil.example", "")),
        ("gift card", "", ("gift card", "")),
        ('say "hello', "", ('say "hello', "")),
        ("  ", "", ("", "")),
    ],
)
def test_an_operator_names_the_kind_of_a_value(text: str, reading: str, expected: tuple[str, str]) -> None:
    assert read_value(text, reading) == expected
