"""Patterns over hostile text: a megabyte of near matches takes no longer than a megabyte of anything else."""

import time
from typing import Any

import pytest

from mailwarden.analysis import pictures
from mailwarden.analysis.analyzers import html, obfuscation, sender, urls
from mailwarden.analysis.links import hosts, targets
from mailwarden.analysis.text import calendars, renderings
from mailwarden.analysis.text import extraction as passwords
from mailwarden.files import archive_types, encoded, mails, rtf, text_drawings, vector_drawings
from mailwarden.lists.kinds import urls as url_entries
from mailwarden.message import charsets, decoding, headers, html_links, media, preview, structure
from mailwarden.message import html as message_html
from mailwarden.message import urls as message_urls
from mailwarden.message.addresses import read_addresses
from mailwarden.quarantine import release_token
from mailwarden.quarantine import result_headers as delivery_headers
from mailwarden.smtp import commands as smtp_commands

MEGABYTE = 1_000_000
SECONDS = 4.0  # alone each takes less than a second; a quadratic one would take minutes

# The pattern, how it is used, and what is repeated before an end that does not match.
NEAR_MATCHES = [
    (sender._ADDRESS, "search", "a@a.a.a.a.a.a.a.a."),
    (sender._DOMAIN, "search", " a.a.a.a.a.a.a.a."),
    (urls._IDLE, "match", "javascript: "),
    (urls._IDLE, "match", "javascript:void" + " " * 10_000),
    (hosts._SHOWN_URL, "search", "www.a@"),
    (hosts._SHOWN_HOST, "match", "a."),
    (hosts._AUTHORITY, "match", " "),
    (targets._NUMBERS, "search", "/1/1/1_"),
    (targets._INNER, "search", "http:///"),
    (targets._AMP, "match", "https://google.com/amp/s/"),
    (obfuscation._FAR, "search", "<br>&nbsp;&nbsp;"),
    (html._ANCHOR, "search", "<a <a "),
    (html._HANDLER_SENDS_ON, "search", "onload=' onload="),
    (pictures._CARRIED, "search", "data:image/png;base64,"),
    (text_drawings._STYLED, "search", ".a{.a{"),
    (vector_drawings._ELEMENT, "search", "<path <path"),
    (vector_drawings._FIELD, "search", " d='a"),
    (preview._TAG, "search", '<a b="c" b="'),
    (preview._SCHEME, "search", "abc."),
    (message_urls._URL, "search", "http://www.http://"),
    (message_urls._LAST_LABEL, "search", "a.a.a.a.1 "),
    (message_urls._BARE_ADDRESS, "search", "1.1.1.1.1.1"),
    (message_urls._ANGLED, "search", "<http://a "),
    (message_html._CONDITIONAL, "search", "<!--[if <!--[if"),
    (message_html._CONDITIONAL, "search", "<!--[if a]>-"),
    (message_html._MAY_HIDE, "search", "non:  -12"),
    (html_links._CSS_URL, "search", "url(url("),
    (html_links._CSS_URL, "search", '@import "'),
    (html_links._CSS_COMMENT, "search", "/* *"),
    (html_links._CSS_ESCAPE, "search", "\\a"),
    (html_links._REFRESH, "match", "0; "),
    (html_links._DATA, "match", "data:a;b"),
    (calendars._FIELD, "search", "A;B="),
    (calendars._FIELD, "search", 'A;B="\n'),
    (calendars._NAME, "search", ';CN="'),
    (calendars._TAG, "search", "<a <a"),
    (renderings._PREFIX, "search", "xmlns:a='"),
    (renderings._ENTITY, "search", "<!ENTITY a '"),
    (rtf._TOKEN, "search", b"{\\a1 "),
    (rtf._ADDRESS, "search", "HYPERLINK \\l "),
    (charsets._ESCAPES, "search", b"\x1b$("),
    (charsets._UTF_7, "search", b"+AD"),
    (url_entries._PLAIN, "fullmatch", "https://a.a.a.a/"),
    (url_entries._PLAIN, "fullmatch", "https://a.a/" + "a/" * 10_000),
    (smtp_commands._RECIPIENT, "fullmatch", '"\\"'),
    (headers._PARAMETER, "search", b' a="\\'),
    (headers._COMMENT_PIECE, "search", b'"\\'),
    (headers._WORD, "search", b"=?a?b?a"),
    (media._TYPE, "match", b"text /"),
    (structure._BLANK_LINE, "search", b"\n \t"),
    (decoding._PADDED_BREAK, "search", b"= \t"),
    (decoding._LOOKS_BASE64, "match", b"AAAAAAAAAAAAAAAA= "),
    (decoding._BEGIN, "search", b"\n> > > begin 644"),
    (decoding._YENC_BEGIN, "search", b"\n=ybegin a"),
    (encoded._ATTACHED, "search", b"\nATTACH;a=b;"),
    (encoded._FILE_NAME, "search", b';FILENAME="'),
    (mails._MAIL_FIELDS, "search", b"\nx-a-a-a-a-"),
    (mails._ENVELOPE, "search", b"\n\nFrom "),
    (rtf._OUTLOOK_TOKEN, "search", b"\\a\\'\\-"),
    (archive_types._VOLUME, "search", ".part1"),
    (passwords._JOINED, "search", "password for "),
    (passwords._NEAR, "search", "code d'acc"),
    (delivery_headers._OWN, "search", b"x-mailwarden-a\r\n a\n"),
    (delivery_headers._FIELD, "search", b"x-mailwarden-a: b\r\n \n"),
    (release_token._FIELDS, "fullmatch", b"a:b\r\n c\r\n"),
    (release_token._NO_TRACE_FIELD, "search", b"content-content-"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "use", "piece"), NEAR_MATCHES)
def test_near_matches_take_linear_time(pattern: Any, use: str, piece: Any) -> None:
    text = piece * (MEGABYTE // len(piece)) + piece[:1]
    began = time.process_time()
    if use == "search":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, use)(text)
    assert time.process_time() - began < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("piece", ['\\"', "\\(", '"', "(", "<", '("', '(\\("\\"'])
def test_quotes_and_comments_without_an_end_take_linear_time(piece: str) -> None:
    began = time.process_time()
    read_addresses('"(' + piece * (262_144 // len(piece)))
    assert time.process_time() - began < SECONDS


def test_a_quote_without_an_end_hides_nothing_behind_it() -> None:
    (found,) = read_addresses('"Ada \\" <ada@north.example>')
    assert found.address == "ada@north.example"
    (first, second) = read_addresses("(\\( ada@north.example, (ok) bob@south.example")
    assert (first.address, second.address) == ("ada@north.example", "bob@south.example")
