"""A link is plain only where it leads to whom its text names, and nothing hides in its address."""

import pytest

from mailwarden.analysis.links.hosts import false_name, misleading, public_ip, shown_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://www.bank.example/login", "www.bank.example"),
        ("WWW.Bank.Example", "www.bank.example"),
        ("bank.example", "bank.example"),
        ("bank.example/login?x=1", "bank.example"),
        ("Log in at https://bank.example now", "bank.example"),
        ("click here", ""),
        ("report.pdf", ""),
        ("ada@bank.example", ""),
        ("Mr. Smith", ""),
        ("v1.2", ""),
        ("", ""),
    ],
)
def test_the_text_of_a_link_shows_a_host_or_none(text, host):
    assert shown_host(text) == host


@pytest.mark.parametrize(
    ("href", "text", "found"),
    [
        ("https://thief.example/", "www.bank.example", ("www.bank.example", "thief.example")),
        ("https://bank.example.thief.example/", "bank.example", ("bank.example", "bank.example.thief.example")),
        ("https://bank.example@thief.example/", "bank.example", ("bank.example", "thief.example")),
        ("https:\\\\thief.example", "bank.example", ("bank.example", "thief.example")),
        ("https://login.bank.example/", "www.bank.example", None),
        ("https://emea01.safelinks.protection.outlook.com/?url=x", "bank.example", None),
        ("https://notsafelinks.protection.outlook.com.thief.example/", "bank.example", "any"),
        ("https://mimecastprotect.com.thief.example/", "bank.example", "any"),
        ("https://evil-urldefense.com/", "bank.example", "any"),
        ("mailto:ada@thief.example", "bank.example", None),
        ("https://thief.example/", "click here", None),
    ],
)
def test_a_link_misleads_where_text_and_target_are_of_different_organisations(href, text, found):
    result = misleading(href, text)
    assert result is not None if found == "any" else result == found


@pytest.mark.parametrize("host", ["8.8.8.8", "[2a00:1450::1]", "0x08080808", "134744072", "010.8.8.8"])
def test_a_bare_address_is_seen_in_every_spelling(host):
    assert public_ip(host)


@pytest.mark.parametrize("host", ["192.168.1.1", "127.0.0.1", "bank.example", "1.example", ""])
def test_names_and_private_addresses_are_no_bare_addresses(host):
    assert not public_ip(host)


def test_a_user_name_before_the_host_is_reported():
    assert false_name("https://bank.example@thief.example/") == "bank.example"
    assert false_name("https://thief.example/?mail=ada@bank.example") == ""
    assert false_name("mailto:ada@bank.example") == ""
