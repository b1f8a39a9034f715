"""Reporters agree if two different persons report the same kind and none disagrees."""

import pytest

from mailwarden.user_reports.cases.model import agreed_kind, base_address
from mailwarden.user_reports.reports import Kind

P, S, F = Kind.PHISHING, Kind.SPAM, Kind.GOOD


@pytest.mark.parametrize(
    ("kinds", "agreed"),
    [((), None), ((P,), None), ((P, P), P), ((P, S), S), ((F, F), F), ((P, F), None), ((P, P, F), None)],
)
def test_two_persons_agree_unless_one_disagrees(kinds: tuple[Kind, ...], agreed: Kind | None) -> None:
    assert agreed_kind(kinds) is agreed


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("Ann@Acme.example", "ann@acme.example"),
        ("ann+x@acme.example", "ann@acme.example"),
        ("ann+x+y@acme.example", "ann@acme.example"),
        ("+x@acme.example", "+x@acme.example"),
        ("ann", "ann"),
        ("", ""),
    ],
)
def test_a_sub_address_is_the_same_reporter(address: str, base: str) -> None:
    assert base_address(address) == base
