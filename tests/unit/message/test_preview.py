"""The safe preview holds words and plain formatting: nothing in it loads, runs, submits or leads anywhere."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from mailwarden.message.parser import parse_message
from mailwarden.message.preview import (
    FORMATTING,
    MAX_PAGE,
    POLICY,
    STYLE,
    chosen_part,
    document_of,
    preview_message,
    sanitised,
)
from tests.properties import examples

OURS = {"samp", "kbd"}

HOSTILE = [
    "<img src=http://canary.example/1>",
    '<img srcset="http://canary.example/1 1x, http://canary.example/2 2x">',
    "<picture><source srcset=http://canary.example/1><img src=x></picture>",
    "<div style='background:url(http://canary.example/1)'>x</div>",
    "<style>@import 'http://canary.example/1';@font-face{font-family:x;src:url(http://canary.example/2)}</style>",
    "<link rel=stylesheet href=http://canary.example/1><link rel=dns-prefetch href=//canary.example>",
    "<script src=http://canary.example/1></script><script>alert(1)</script>",
    "<iframe src=http://canary.example/1></iframe><iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=http://canary.example/1></object><embed src=http://canary.example/1><applet code=x></applet>",
    "<video src=http://canary.example/1 poster=http://canary.example/2></video><audio src=http://canary.example/1>",
    "<svg><image href=http://canary.example/1 /><use href=http://canary.example/1#x /><a href=//c.example>x</a></svg>",
    "<math><maction actiontype=statusline xlink:href=javascript:alert(1)>x</maction></math>",
    "<meta http-equiv=refresh content='0;url=http://canary.example/1'><base href=http://canary.example/>",
    "<form action=http://c.example/1><button formaction=javascript:alert(1)>x<input type=image src=//c.example>",
    "<body background=http://canary.example/1 onload=alert(1)><table background=http://canary.example/2><td>x",
    "<a href=http://canary.example/ ping=http://canary.example/p>x</a><map><area href=http://canary.example/></map>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<textarea><p title='</textarea><img src=x onerror=alert(1)>'>",
    "<a href='\"><img src=http://canary.example/1>'>x</a><img alt='\"><script>alert(1)</script>' src=x>",
    "<img alt='<script>alert(1)</script>'><a href='<script>alert(1)</script>'>x</a>",
    "<!--><img src=x onerror=alert(1)>--><![CDATA[<img src=x>]]><?php echo '<img src=x>' ?>",
    "<p/onclick=alert(1)//x=<img/src=x>>x</p><b\x00onclick=alert(1)>x</b>",
    "<xmp><img src=x onerror=alert(1)></xmp><plaintext><img src=x onerror=alert(1)>",
    "&lt;img src=x onerror=alert(1)&gt; &#60;script&#62;alert(1)&#60;/script&#62;",
    "<samp>hxxps://bank[.]example</samp><kbd>image</kbd>",
    "<template><img src=x></template><slot><dialog open><details ontoggle=alert(1) open>",
    "<portal src=//c.example></portal><fencedframe src=//c.example></fencedframe><bgsound src=//c.example>",
]


class Reader(HTMLParser):
    """A second opinion on what is in a document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.others: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_comment(self, data):
        self.others.append(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def assert_harmless(body: str) -> None:
    reader = Reader()
    reader.feed(body)
    reader.close()
    assert not reader.others
    assert all(tag in FORMATTING | OURS and not attributes for tag, attributes in reader.tags)
    tree = LexborHTMLParser(document_of(body))
    assert tree.body is not None
    for node in tree.body.traverse(include_text=False):
        assert node.tag in FORMATTING | OURS | {"body"}
        assert not node.attributes


@pytest.mark.parametrize("page", HOSTILE)
def test_nothing_that_loads_or_runs_remains(page):
    assert_harmless(sanitised(page))
    assert_harmless(sanitised(f"<html><head>{page}</head><body><table><tr><td>{page}</table>{page}"))


FRAGMENTS = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE),
        st.sampled_from(
            ["<", ">", '"', "'", "&", "&lt;", "<!--", "-->", "</", "/>", "<a ", " href=", "<p", "\x00", "=`"]
        ),
        st.sampled_from(["<svg>", "<math>", "<table>", "<select>", "</table>", "<title>", "</title>", "<b>", "</p>"]),
        st.text(max_size=20),
    ),
    max_size=12,
).map("".join)


@pytest.mark.slow
@examples(400)
@given(FRAGMENTS)
def test_no_html_leaves_active_content_in_the_preview(page):
    assert_harmless(sanitised(page))


@examples(100)
@given(FRAGMENTS)
def test_no_text_leaves_active_content_in_the_preview(page):
    raw = b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + page.encode("utf-8", "replace")
    body = preview_message(raw).document.partition("<body>")[2].removesuffix("</body></html>")
    assert_harmless(body)


def test_a_link_target_is_shown_defanged_after_its_text():
    assert sanitised('<a href="https://evil.example/a?b=1&amp;c=2">bank.example</a>') == (
        "bank.example <samp>hxxps://evil[.]example/a?b=1&amp;c=2</samp> "
    )


def test_unusual_schemes_are_shown():
    shown = sanitised(
        '<a href="javascript:alert(1)">a</a><a href="ms-msdt:/id PCW">b</a><a href="data:text/html,x">c</a>'
    )
    assert "javascript:alert(1)" in shown
    assert "ms-msdt:/id" in shown
    assert "data:text/html,x" in shown


def test_a_message_cannot_write_a_target_of_its_own():
    assert "<samp>" not in sanitised("<samp>hxxps://bank[.]example</samp><a>x</a>")


def test_an_image_is_a_box_with_its_description():
    assert sanitised('<img src="http://x.example/i" alt="Logo">').strip() == "<kbd>image: Logo</kbd>"


def test_forms_are_shown_as_text():
    shown = sanitised(
        '<form action="https://evil.example/"><input type=password><input type=submit value="Sign in"></form>'
    )
    assert "form, sends to hxxps://evil[.]example/" in shown
    assert "field: password" in shown
    assert "button: Sign in" in shown


def test_the_page_is_shown_rather_than_its_plain_copy_and_no_attachment():
    raw = (
        b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
        b"--x\r\nContent-Type: text/html\r\nContent-Disposition: attachment; filename=a.html\r\n\r\n<p>attached\r\n"
        b"--x\r\nContent-Type: text/plain\r\n\r\nplain\r\n"
        b"--x\r\nContent-Type: text/html\r\n\r\n<p>page\r\n--x--\r\n"
    )
    part = chosen_part(parse_message(raw))
    assert part is not None
    assert b"page" in part.content


def test_a_plain_text_keeps_its_lines_and_shows_its_tags_as_text():
    document = preview_message(b"Subject: x\r\n\r\none\r\n<b>two</b>\x1b[31m\r\n").document
    assert "one\n&lt;b&gt;two&lt;/b&gt;[31m" in document.replace("\r", "")


def test_a_message_without_text_or_beyond_a_limit_is_marked():
    assert "no text to show" in preview_message(b"Subject: x\r\n\r\n").document
    assert "<kbd>" in preview_message(b"\n" * 2_100_000).document


def test_a_long_page_is_truncated_with_a_note():
    raw = b"Content-Type: text/html\r\n\r\n" + b"<p>word " * (MAX_PAGE // 8 + 10)
    document = preview_message(raw).document
    assert "Only the beginning is shown." in document


def test_a_page_nested_deep_is_shown_as_its_words():
    document = preview_message(b"Content-Type: text/html\r\n\r\n" + b"<div>" * 100_000 + b"words").document
    assert "these are its words" in document
    assert "words</pre>" in document


def test_the_policy_allows_our_style_and_nothing_else():
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert POLICY.startswith("default-src 'none';")
    assert "sandbox;" in POLICY
    assert not re.search(r"url\(|@import|http", STYLE)
    assert f"<style>{STYLE}</style>" in document_of("")


def test_the_message_is_named_by_its_digest():
    raw = b"Subject: x\r\n\r\nhello\r\n"
    assert preview_message(raw).sha256 == hashlib.sha256(raw).hexdigest()
