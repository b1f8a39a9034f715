"""The keys under which what a message holds may be stored, most specific first."""

import hashlib

import pytest

from mailwarden.lists.kinds import KINDS
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip
from mailwarden.lists.kinds.people import candidates_for_name, key_of_name, person_of
from mailwarden.lists.kinds.senders import (
    candidates_for_address,
    candidates_for_recipient,
    candidates_for_sender_domain,
)
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.kinds.urls import candidates_for_url

LENGTHS = PrefixLengths.of(["192.0.2.1", "10.0.0.0/8", "198.51.100.0/24", "2001:db8::/32", "2001:db8::1", "a.example"])


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("A@b.C.Example.com", ["a@b.c.example.com", "b.c.example.com", "*.c.example.com", "*.example.com"]),
        ('"a"@example.com', ["a@example.com", "example.com"]),
        ("a@BÜCHER.example.", ["a@xn--bcher-kva.example", "xn--bcher-kva.example"]),
        ("", []),
        ("<>", []),
        ("nobody", []),
        ("a@", []),
    ],
)
def test_an_address_matches_itself_its_domain_and_parent_wildcards(address, keys):
    assert candidates_for_address(address) == keys


def test_a_domain_excludes_subdomains_and_a_wildcard_excludes_the_domain():
    assert "example.com" not in candidates_for_address("a@mail.example.com")
    assert "*.example.com" not in candidates_for_address("a@example.com")
    assert candidates_for_sender_domain("Mail.Example.com") == ["mail.example.com", "*.example.com"]
    assert candidates_for_recipient("A@mail.Example.com") == ["a@mail.example.com", "mail.example.com"]
    assert candidates_for_domain("Mail.Example.com.") == ["mail.example.com"]


def test_an_ip_address_has_one_key_for_each_length_in_use():
    assert PrefixLengths(ipv4=(32, 24, 8), ipv6=(128, 32)) == LENGTHS
    assert candidates_for_ip("10.1.2.3", LENGTHS) == ["10.1.2.3", "10.1.2.0/24", "10.0.0.0/8"]
    assert candidates_for_ip("::ffff:10.1.2.3", LENGTHS) == ["10.1.2.3", "10.1.2.0/24", "10.0.0.0/8"]
    assert candidates_for_ip("[IPv6:2001:DB8::5]", LENGTHS) == ["2001:db8::5", "2001:db8::/32"]
    assert candidates_for_ip("mail.example.com", LENGTHS) == []
    assert candidates_for_ip("10.1.2.3", PrefixLengths.of([])) == []


def test_a_link_matches_its_page_parent_paths_host_and_wildcards():
    assert candidates_for_url("https://u:p@a.b.example.com/x/y.php?q=1#f") == [
        "a.b.example.com/x/y.php?q=1",
        "a.b.example.com/x/y.php",
        "a.b.example.com/x/y.php/*",
        "a.b.example.com/x/*",
        "a.b.example.com",
        "*.b.example.com",
        "*.example.com",
    ]


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("http://evil.example:8080/a", "evil.example"),
        ("http://evil.example:8080/a", "evil.example:8080"),
        ("http://evil.example:99999/a", "evil.example"),
        ("http:\\\\evil.example\\a", "evil.example/a"),
        ("http://good.example@evil.example/", "evil.example"),
        ("https://evil.example/login/?id=7", "evil.example/login"),
        ("https://evil.example/login", "evil.example/login/*"),
        ("https://evil.example/x/../login//a", "evil.example/login/*"),
        ("https://ev\u00adil.example/%6Cogin", "evil.example/login"),
        ("https://ev\til.example/", "evil.example"),
        ("http://%65vil.example/", "evil.example"),
        ("http://3221225991/", "192.0.2.7"),
        ("http://0300.0.02.0x7/", "192.0.2.7"),
        ("http://192.0.2.7/pay", "192.0.2.7"),
        ("www.evil.example/a", "*.evil.example"),
        ("//evil.example/a", "evil.example/a"),
        ("https://i❤.example/", "xn--i-7iq.example"),
    ],
)
def test_an_obfuscated_link_matches(url, stored):
    assert KINDS["url"].normalise(stored) == stored
    assert stored in candidates_for_url(url)


@pytest.mark.parametrize("url", ["", "http://", "http:///", "https://[::1", "?", "#", "http://" + "a." * 4_000])
def test_a_link_without_a_host_has_no_keys(url):
    assert candidates_for_url(url) == []


def test_the_keys_of_a_hostile_link_are_few():
    keys = candidates_for_url("http://" + "a." * 120 + "example/" + "b/" * 4_000 + "?" + "c" * 9_000)
    assert len(keys) < 200
    assert max(map(len, keys)) <= 2_000


def test_a_file_matches_each_of_its_hashes():
    content = b"sample"
    sha256, sha1, md5 = (hashlib.new(name, content).hexdigest() for name in ("sha256", "sha1", "md5"))
    assert candidates_for_hashes(sha256.upper(), sha1, md5) == [sha256, sha1, md5]
    assert candidates_for_hashes(sha256) == [sha256]


@pytest.mark.parametrize(
    ("name", "media_type", "inside", "keys"),
    [
        ("Invoice.PDF.exe", "Application/PDF; name=x", (), [".pdf.exe", ".exe", "application/pdf"]),
        ("a.zip", "", ("x/y.JS", "z\\w.tar.gz"), [".tar.gz", ".zip", ".js", ".gz"]),
        ("setup.exe . ", "", (), [".exe"]),
        ("gpj.\u202eexe", "", (), [".exe"]),
        ("dir.exe/readme", "", (), []),
        ("README", "text/plain", (), ["text/plain"]),
        ("", "", (), []),
    ],
)
def test_an_attachment_matches_its_extensions_and_media_type(name, media_type, inside, keys):
    assert candidates_for_attachment(name, media_type, inside) == keys


def test_a_name_matches_in_any_order_case_and_accent():
    key = key_of_name("José Smith")
    assert candidates_for_name("SMITH, Jose") == [key] == candidates_for_name("ｊｏｓé\u200b  smith")
    assert candidates_for_name("José Smithson") != [key]
    assert candidates_for_name("...") == []
    assert person_of("Ada Byron <ada@example.com>") == ("Ada Byron", "ada@example.com")


def test_a_subject_matches_literals_before_patterns_longest_first():
    matcher = SubjectMatcher(
        ["won", "you have won", "/prize [0-9]+/i", "/PRIZE/", "/\\Qa.b/", "other", "/(?P<n>x)y/", "/(?P<n>z)y/"]
    )
    assert matcher.find("You   HAVE\twon  Prize 7") == ["you have won", "won", "/prize [0-9]+/i"]
    assert matcher.find("PRIZE a.b") == ["/PRIZE/", "/\\Qa.b/"]
    assert matcher.find("xy") == ["/(?P<n>x)y/"]
    assert matcher.find("\ud800 won") == ["won"]
    assert matcher.find("") == []


def test_a_thousand_patterns_all_match():
    entries = [f"/case {number} (open|closed)/i" for number in range(1_000)]
    matcher = SubjectMatcher(entries)
    assert matcher.find("Re: CASE 731 closed") == ["/case 731 (open|closed)/i"]
    assert matcher.find("nothing of the kind") == []


@pytest.mark.parametrize("url", ["file://files.example/a", "SMB://files.example/a", " ms-word://files.example/a"])
def test_a_link_of_any_scheme_is_looked_up_by_its_host(url):
    assert candidates_for_url(url) == candidates_for_url("http://files.example/a")
