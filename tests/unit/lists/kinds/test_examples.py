"""Accepted spellings and what they become; refused ones and why."""

import pytest

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds import KINDS
from tests.tables import every

ACCEPTED = {
    "sender": [
        (" Ada@Example.COM. ", "ada@example.com"),
        ("mailto:ada@example.com", "ada@example.com"),
        ("ada (at) example (dot) com", "ada@example.com"),
        ("ada{@}example{.}com", "ada@example.com"),
        ('"ada"@example.com', "ada@example.com"),
        ("a+b=c/d!e@example.com", "a+b=c/d!e@example.com"),
        ("JÖRG@Example.com", "jörg@example.com"),
        ("jo\u0308rg@example.com", "jörg@example.com"),
        ("postmaster@gov.uk", "postmaster@gov.uk"),
        ("*@*.Example.com", "*.example.com"),
        ("\ufeffexample.com\r\n", "example.com"),
        ("under_score.example.com", "under_score.example.com"),
        ("BÜCHER。example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("i❤.example", "xn--i-7iq.example"),
    ],
    "ip": [
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001[:]db8[:]:1", "2001:db8::1"),
        ("::ffff:198.51.100.0/120", "198.51.100.0/24"),
        ("::FFFF:C633:6401", "198.51.100.1"),
        ("2001:db8::1/128", "2001:db8::1"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2001:e000::/19", "2001:e000::/19"),
        ("::1.2.3.4", "::102:304"),
        ("::", "::"),
    ],
    "url": [
        ("HTTPS://Example.com", "example.com"),
        ("hxxp[://]evil[.]example/a[.]php", "evil.example/a.php"),
        ("hXXps[:]//evil(dot)example/x", "evil.example/x"),
        ("h**p://evil.example/", "evil.example"),
        ("evil.example[/]path", "evil.example/path"),
        ("//evil.example/a//b/./c/../d/", "evil.example/a/b/d"),
        ("evil.example\\a\\b", "evil.example/a/b"),
        ("evil.example/%7euser/%2e%2e/%c3%a9", "evil.example/%C3%A9"),
        ("evil.example/é?q=é#x", "evil.example/%C3%A9?q=%C3%A9"),
        ("evil.example/a[1]", "evil.example/a%5B1%5D"),
        ("evil.example/a(.)b", "evil.example/a(.)b"),
        ("evil.example/100%", "evil.example/100%25"),
        ("evil.example/*", "evil.example"),
        ("evil.example/?", "evil.example"),
        ("evil.example?q=1", "evil.example?q=1"),
        ("http://evil.example:80", "evil.example"),
        ("evil.example:443/x", "evil.example/x"),
        ("ftp://evil.example:21/x", "evil.example/x"),
        ("https://evil.example:8443", "evil.example:8443"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://[2001:DB8::1]:8080/a", "[2001:db8::1]:8080/a"),
        ("http://[::ffff:192.0.2.7]/", "192.0.2.7"),
        ("https://*.evil.example/*", "*.evil.example"),
        ("github.io/somebody", "github.io/somebody"),
    ],
    "hash": [("MD5=098F6BCD4621D373CADE4E832627B4F6", "098f6bcd4621d373cade4e832627b4f6")],
    "attachment": [
        ("EXE", ".exe"),
        (".Exe. ", ".exe"),
        (".tar.gz", ".tar.gz"),
        (".e\u200bxe", ".exe"),
        ("application/vnd.ms-excel.sheet.macroEnabled.12", "application/vnd.ms-excel.sheet.macroenabled.12"),
    ],
    "subject": [
        ("Ｆｒｅｅ  Ｍｏｎｅｙ", "free money"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("/^$/", "/^$/"),
    ],
    "recipient": [("@example.com", "example.com")],
    "domain-or-ip": [("192[.]0[.]2[.]1", "192.0.2.1"), ("2001:DB8::1", "2001:db8::1"), ("A.example.", "a.example")],
    "person": [
        ("  Ada   Byron<ada[@]example[.]com>", "Ada Byron <ada@example.com>"),
        ('Ada "The Countess" Byron <ada@example.com>', "Ada The Countess Byron <ada@example.com>"),
    ],
    "domain": [("BÜCHER.example", "xn--bcher-kva.example")],
}

REFUSED = {
    "sender": [
        ("", "empty"),
        (" \u200b ", "empty"),
        ("a\x00@example.com", "U\\+0000"),
        ("a\nb@example.com", "U\\+000A"),
        ("\ud800@example.com", "not UTF-8"),
        ("a\u202eb@example.com", "U\\+202E"),
        ("localhost", "no dot"),
        ("ada@localhost", "no dot"),
        ("ada@", "no dot"),
        ("a b@example.com", "no local part"),
        ("a@b@example.com", "no local part"),
        ("Ada <ada@example.com>", "no local part"),
        ("a*@example.com", "no local part"),
        ("a" * 257 + "@example.com", "no local part"),
        (".example.com", r"write `\*\.example\.com`"),
        ("*.*.example.com", "no domain"),
        ("192.0.2.1", "IP address"),
        ("-a.example", "no domain"),
        ("a" * 64 + ".example", "no domain"),
        (("a" * 60 + ".") * 5 + "example", "at most 253"),
        ("ada dot example dot com", "no dot"),
        ("x" * 2_001, "at most 2,000"),
    ],
    "ip": [
        ("192.0.2.1/24", r"192\.0\.2\.0/24"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("192.0.2.256", "no IPv4 or IPv6"),
        ("192.0.2.01", "no IPv4 or IPv6"),
        ("192.0.2", "no IPv4 or IPv6"),
        ("fe80::1%eth0", "no IPv4 or IPv6"),
        ("192.0.2.0/255.255.255.0", "as a number"),
        ("192.0.2.0/33", "no length"),
        ("::ffff:192.0.2.0/90", "no length"),
        ("192.0.2.0/", "as a number"),
        ("example.com", "no IPv4 or IPv6"),
    ],
    "url": [
        ("ada@example.com", "e-mail address"),
        ("mailto:ada@example.com", "begins with its host"),
        ("javascript:alert(1)", "begins with its host"),
        ("localhost/x", "no dot"),
        ("evil.example:0/x", "port"),
        ("evil.example:99999/x", "port"),
        ("*.evil.example/path", "host alone"),
        ("*.evil.example:8080", "host alone"),
        ("evil.example/a*b", "star"),
        ("evil.example/*/b", "star"),
        ("evil.example/a?b=*", "star"),
        ("evil.example/" + "a/" * 21 + "*", "at most 20 steps"),
        ("evil.example/" + "é" * 1_000, "stored form"),
        ("http://[2001:db8::zz]/", "no d"),
        ("http://::1:/", "no d"),
        ("evil example", "no dot"),
    ],
    "hash": [("xyz", "hexadecimal"), ("abc", "not 3"), ("md5:" + "a" * 40, "MD5 has 32"), ("a" * 65, "not 65")],
    "sha256": [("a" * 40, "Only SHA-256")],
    "attachment": [
        ("a.b.c", "extension"),
        ("..", "extension"),
        ("*/*", "media type"),
        ("image/*", "media type"),
        ("/", "media type"),
    ],
    "subject": [
        ("/(/i", "missing \\)"),
        ("/(?=a)b/i", "RE2 does not take"),
        ("/(a)\\1/i", "RE2 does not take"),
        ("/a/x", "written"),
        ("/a", "written"),
        ("//", "written"),
        ("/((a{100}){100}){100}/", "RE2 does not take"),
        (r"/(\pL+.{0,40}){4}/", "too large"),
        ("／x", "pattern when folded"),
    ],
    "recipient": [("*.example.com", r"`\*\.` is not taken")],
    "domain-or-ip": [("192.0.2.1/24", "Host bits"), ("1.2.3", "no IPv4"), ("*.example.com", "no domain")],
    "person": [
        ("Ada Byron", "Display Name"),
        ("ada@example.com", "Display Name"),
        ("<ada@example.com>", "comes a name"),
        ("... <ada@example.com>", "comes a name"),
        ("A <b> <ada@example.com>", "comes a name"),
        ("Ada <example.com>", "comes an address"),
        ("A" * 201 + " <ada@example.com>", "at most 200"),
    ],
    "domain": [("*.example.com", "no domain"), ("a@example.com", "no domain"), ("\u2488com", "no dot|no domain")],
}

TOO_BROAD = {
    "sender": ["com", "co.uk", "*.uk", "@co.uk", "*.github.io", "公司.cn"],
    "ip": ["0.0.0.0/0", "10.0.0.0/7", "::/0", "2000::/18", "::ffff:0:0/96"],
    "url": ["https://co.uk/", "*.github.io", "github.io/*", "pages.dev:8080"],
    "hash": ["d41d8cd98f00b204e9800998ecf8427e", "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709"],
    "subject": ["a", "/.*/", "/./i", "/[a-z]/", "/a*/", "/x?/i"],
    "domain-or-ip": ["net", "128.0.0.0/1"],
    "recipient": ["org"],
    "domain": ["com.au"],
}


def rows(table):
    return [(kind, *(row if isinstance(row, tuple) else (row,))) for kind in table for row in table[kind]]


@pytest.mark.contract("4")
def test_a_spelling_is_stored_in_its_one_form():
    def check(case):
        kind, spelling, stored = case
        assert KINDS[kind].normalise(spelling) == stored
        assert KINDS[kind].normalise(stored) == stored

    every(rows(ACCEPTED), check)


def test_an_invalid_entry_is_rejected_with_the_reason():
    def check(case):
        kind, spelling, reason = case
        with pytest.raises(InvalidEntry, match=reason):
            KINDS[kind].normalise(spelling)

    every(rows(REFUSED), check)


@pytest.mark.contract("4")
def test_a_too_broad_entry_is_rejected():
    def check(case):
        kind, spelling = case
        with pytest.raises(EntryTooBroad):
            KINDS[kind].normalise(spelling)

    every(rows(TOO_BROAD), check)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_example_that_is_shown_to_people_works(kind):
    assert kind.examples
    assert {spelling: kind.normalise(spelling) for spelling, _ in kind.examples} == dict(kind.examples)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_in_the_table_of_accepted_or_shown_spellings(kind):
    assert kind.name in ACCEPTED or kind.name == "sha256", "add spellings of this kind to ACCEPTED"
