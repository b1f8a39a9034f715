"""Text, pages and links beyond a limit: each limit that stops a reader is recorded, and nothing is lost before it."""

import base64

import pytest
from msgspec.structs import replace

from mailwarden.analysis.view import View
from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import LIMITS
from mailwarden.message.parser import parse_message
from mailwarden.model.evidence import Finding
from mailwarden.pipeline.worker_steps import Job, run_steps

HEAD = b"From: a@north.example\r\nTo: b@south.example\r\nSubject: s\r\nMIME-Version: 1.0\r\n"
LINK = "https://thief.example/last"


def message(body: str | bytes, kind: str = "text/html; charset=utf-8") -> bytes:
    content = body.encode() if isinstance(body, str) else body
    head = f"Content-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n\r\n".encode()
    return HEAD + head + base64.encodebytes(content).replace(b"\n", b"\r\n")


def found(raw: bytes, **limits: int) -> list[Finding]:
    frames = run_steps(Job(raw), replace(LIMITS, **limits))
    reports = [frame.report for frame in frames]
    assert not [report.failure for report in reports if report.failure]
    return [finding for report in reports for finding in report.findings]


def nested(times: int) -> str:
    page = f"<a href='{LINK}'>x</a>"
    for _ in range(times):
        page = f"<a href='data:text/html;base64,{base64.b64encode(page.encode()).decode()}'>x</a>"
    return page


REDIRECTIONS = "".join(f"https://r{number}-shop.com/?u=" for number in range(30)) + LINK
# For each limit: a small value for it, a message within, and one beyond.
BEYOND = {
    "text": (1_000, "x " * 200, "x " * 900, "text/plain"),
    "html": (2_000, "<p>x</p>" * 100, "<p>x</p>" * 900, "text/html"),
    "html_scripts": (100, "<script>a()</script>", f"<script>{'a();' * 50}</script>", "text/html"),
    "html_text": (500, "<p>x y</p>" * 20, "<p>x y</p>" * 400, "text/html"),
    "html_nodes": (50, "<img src=a>" * 20, "<img src=a>" * 80, "text/html"),
    "html_depth": (100, "<div>" * 50, "<div>" * 200 + "<a href=b>c</a>", "text/html"),
    "link_text": (100, "<a href=b>c</a>", f"<a href=b>{'c ' * 200}</a>", "text/html"),
    "carried_depth": (2, nested(1), nested(4), "text/html"),
    "urls": (10, "<a href=http://a.example/>a</a>", "".join(f"<a href=http://a.example/{n}>a</a>" for n in range(20)),
             "text/html"),
    "urls_written": (10, "http://a.example/ " * 5, "http://a.example/ " * 20, "text/plain"),
    "url": (200, f"<a href={LINK}>a</a>", f"<a href={LINK}/{'a' * 300}>a</a>", "text/html"),
    "redirections": (5, f"<a href='{LINK}'>a</a>", f"<a href='{REDIRECTIONS}'>a</a>", "text/html"),
    "calendar_fields": (5, "BEGIN:VCALENDAR\nSUMMARY:a\n", "BEGIN:VCALENDAR\n" + "SUMMARY:a\n" * 9, "text/calendar"),
    "xml_entities": (2, "<!ENTITY a 'b'><html xmlns='http://www.w3.org/1999/xhtml'>",
                     "".join(f"<!ENTITY a{n} 'b'>" for n in range(9)) + "<html xmlns='http://www.w3.org/1999/xhtml'>",
                     "application/xhtml+xml"),
    "texts": (1, "<p>a</p>", "<p>b</p><!--[if mso]><p>c</p><![endif]--><template>d</template>", "text/html"),
}  # fmt: skip


@pytest.mark.parametrize("limit", BEYOND)
def test_content_beyond_a_limit_is_recorded(limit):
    value, within, beyond, kind = BEYOND[limit]
    assert "structure.limit" not in {finding.name for finding in found(message(within, kind), **{limit: value})}
    missed = [
        finding for finding in found(message(beyond, kind), **{limit: value}) if finding.name == "structure.limit"
    ]
    assert limit in {finding.facts["limit"] for finding in missed}


def test_more_pages_than_are_read_are_recorded():
    part = b"--b\r\nContent-Type: text/html\r\n\r\n<p>%d</p>\r\n"
    raw = HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"".join(part % n for n in range(20)) + b"--b--"
    assert "structure.limit" not in {finding.name for finding in found(raw, pages=20)}
    assert "structure.limit" in {finding.name for finding in found(raw, pages=10)}


@pytest.mark.parametrize("padding", [" \r\n", "The minutes of the meeting were read and agreed.\r\n"])
def test_a_link_behind_much_plain_text_is_found(padding):
    view = View(parse_message(message(padding * (400_000 // len(padding)) + LINK, "text/plain")))
    assert LINK in [link.url for link in view.links]
    assert view.coverage.complete


def test_hidden_text_dilutes_no_lure():
    hidden = "<div style='height:0;overflow:hidden'>" + "The minutes of the meeting were read. " * 1_000 + "</div>"
    lure = (
        "<p>Your mailbox is full and your password expires today. <a href=https://pass-docs.weebly.com/>Verify</a></p>"
    )
    names = {finding.name for finding in found(message(hidden + lure))}
    assert {"lures.any", "lures.password-expiry"} <= names


@pytest.mark.parametrize("label", ["scsu", "x-nobody-knows"])
def test_a_charset_that_cannot_be_decoded_is_recorded(label):
    coverage = Coverage()
    view = View(parse_message(message(bytes(range(128, 256)) * 4, f"text/plain; charset={label}")), coverage=coverage)
    assert view.links == ()
    assert [missed.reason for missed in coverage.missed] == [MissedReason.UNSUPPORTED]
    readable = View(parse_message(message("Good morning, see you on Friday.", f"text/plain; charset={label}")))
    assert readable.text
    assert readable.coverage.complete
