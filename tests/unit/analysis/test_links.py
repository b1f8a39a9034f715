"""A link is plain only where it leads to whom its text names, and nothing hides in its address."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.analysis.analyzers.html import HtmlAnalyzer, nothing_to_see
from mailwarden.analysis.links import false_name, misleading, public_ip, shown_host
from mailwarden.message.message import Message, Part


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


def test_a_name_before_the_host_is_told():
    assert false_name("https://bank.example@thief.example/") == "bank.example"
    assert false_name("https://thief.example/?mail=ada@bank.example") == ""
    assert false_name("mailto:ada@bank.example") == ""


@pytest.mark.parametrize(
    "page",
    [
        b'<a href="https://thief.example/">bank.example</a>',
        b"<A HREF=http://thief.example>www.bank.example</A>",
        b'<a title=">" href="http://thief.example/">bank.example</a>',
        b'<a href="http://thief.example/">bank<!-- x -->&#46;example</a>',
        b'<a href="http://8.8.8.8/">x</a>',
        b'<a href="&#106;avascript:x()">x</a>',
        b'<a href="java\tscript:x()">x</a>',
        b'<a title="href=https://bank.example/" href="http://thief.example/">bank.example</a>',
        b'<a/href="//thief.example">bank.example</a>',
        b'<a href="https://x@thief.example">x</a>',
        b"<a href=data:text/html,x>x</a>",
        b"<ScRiPt>x</sCrIpT>",
        b'<base href="https://thief.example"><a href="/x">x</a>',
        b'<meta content="0;url=http://x.example" http-equiv=" &#114;efresh">',
        b'<input type="pass&#119;ord">',
        b"\xff\xfe<\x00s\x00c\x00r\x00i\x00p\x00t\x00",
    ],
)
def test_whatever_may_matter_is_given_to_the_parser(page):
    assert not nothing_to_see(page)


def test_an_ordinary_page_is_not_parsed():
    assert nothing_to_see(b'<p>See <a href="https://www.bank.example/a?b=1&amp;c=2"><b>bank.example</b></a>.</p>')


PIECES = st.sampled_from(
    [b"<a ", b"href=", b'"', b"'", b">", b"</a>", b"http://thief.example", b"bank.example", b"<input ", b"type=",
     b"password", b"<script>", b"&#46;", b"&", b"<", b"/", b" ", b"data:text/html,", b"javascript:x", b"<form>", b"=",
     b"<meta http-equiv=refresh content='0;url=http://x.example'>", b"8.8.8.8", b"@", b"\x00", b"\xe9", b"<!--", b"-->"]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=14).map(b"".join))
def test_the_quick_look_never_rules_out_what_the_parser_finds(page):
    def examine(disposition: str) -> set[str]:
        part = Part("1", "text/html", "", disposition, "utf-8", page, "")
        return {finding.name for finding in HtmlAnalyzer().examine(Message(0, "", (), (part,)))}

    if nothing_to_see(page):
        assert examine("attachment") <= {"html.script-attachment"}
