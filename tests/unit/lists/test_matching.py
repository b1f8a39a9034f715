"""A tenant's entry before a global one, the more specific before the wider, block before allow."""

from uuid import UUID

import pytest

from mailwarden.lists.matching import Match, winner

TENANT = UUID("0198c0de-0000-7000-8000-000000000001")


@pytest.mark.contract("2 precedence")
@pytest.mark.parametrize(
    ("winning", "losing"),
    [
        (Match("sender-allow", "*.example.com", TENANT), Match("sender-block", "a@b.example.com")),
        (Match("sender-allow", "a@b.example.com"), Match("sender-block", "b.example.com")),
        (Match("sender-allow", "b.example.com"), Match("sender-block", "*.example.com")),
        (Match("sender-allow", "*.b.example.com"), Match("sender-block", "*.example.com")),
        (Match("sender-block", "b.example.com"), Match("sender-allow", "b.example.com")),
        (Match("ip-allow", "192.0.2.0/25"), Match("ip-block", "192.0.2.0/24")),
        (Match("ip-allow", "192.0.2.1"), Match("ip-block", "192.0.2.0/31")),
        (Match("ip-block", "2001:db8::/32"), Match("ip-allow", "2001:db8::/32")),
        (Match("url-allow", "example.com/a/b/*"), Match("url-block", "example.com/a/*")),
        (Match("url-allow", "example.com/a/b"), Match("url-block", "example.com/a/b/*")),
        (Match("url-allow", "example.com/a/*"), Match("url-block", "example.com")),
        (Match("url-allow", "example.com:8080"), Match("url-block", "example.com")),
        (Match("url-allow", "example.com"), Match("url-block", "*.com.example")),
        (Match("file-hash-allow", "a" * 64), Match("file-hash-block", "a" * 32)),
        (Match("file-hash-block", "a" * 64), Match("file-hash-allow", "a" * 64)),
        (Match("attachment-block", ".pdf.exe"), Match("attachment-block", ".exe")),
    ],
)
def test_one_match_wins_over_another(winning, losing):
    assert winner([winning, losing]) == winning
    assert winner([losing, winning]) == winning


def test_without_matches_nothing_wins():
    assert winner([]) is None
