"""What lists can meet is found where it is wanted, and nothing is looked for that is not."""

import base64
import hashlib
import io
import zipfile

import pytest

from mailwarden.analysis.examination import Job, examine
from mailwarden.analysis.sightings import find_sightings
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.model.sightings import Sight, Sightings

HEAD = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: s\r\nMIME-Version: 1.0\r\n"


def sight(raw: bytes, *wanted: Sight) -> Sightings:
    return find_sightings(View(parse_message(raw)), wanted)


def text(body: str, kind: str = "text/plain") -> bytes:
    return HEAD + f"Content-Type: {kind}; charset=utf-8\r\n\r\n{body}\r\n".encode()


def attached(name: str, content: bytes) -> bytes:
    head = f'Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="{name}"\r\n'
    encoded = base64.encodebytes(content).replace(b"\n", b"\r\n")
    pieces = [
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n",
        b"--b\r\n" + head.encode() + b"Content-Transfer-Encoding: base64\r\n\r\n" + encoded,
        b"--b--\r\n",
    ]
    return HEAD + b"".join(pieces)


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as opened:
        for name, content in files.items():
            opened.writestr(name.replace("_", "."), content)
    return packed.getvalue()


def test_nothing_is_looked_for_that_is_not_wanted():
    assert sight(text("http://a.example/")) == Sightings()
    assert [frame.sightings for frame in examine(Job(text("http://a.example/"))) if frame.sightings] == []


def test_a_worker_brings_the_sightings_that_its_job_wants():
    frames = list(examine(Job(text("http://a.example/x"), wanted=(Sight.URLS,))))
    assert [frame.sightings.urls for frame in frames if frame.sightings] == [("http://a.example/x",)]
    assert "sightings" in [frame.report.analyzer for frame in frames]
    assert frames[-1].last


@pytest.mark.parametrize(
    "body",
    [
        '<a href="https://a.example/x">here</a>',
        '<form action="https://a.example/x"></form>',
        '<img src="https://a.example/x">',
        '<iframe src="https://a.example/x"></iframe>',
        '<meta http-equiv="refresh" content="0;url=https://a.example/x">',
        "<p>go to https://a.example/x</p>",
        '<map><area href="https://a.example/x"></map>',
    ],
)
def test_links_are_found_wherever_a_page_can_lead_to(body):
    assert "https://a.example/x" in sight(text(body, "text/html"), Sight.URLS).urls


def test_many_harmless_links_do_not_hide_a_host():
    links = "\n".join(f"http://harmless.example/{number}" for number in range(5_000))
    seen = sight(text(f"{links}\nhttp://thief.example/pay"), Sight.URLS)
    assert "http://thief.example/pay" in seen.urls
    assert len(seen.urls) == 5_001


def test_a_file_has_its_digests_and_the_text_is_no_file():
    body, file = sight(attached("tool.bin", b"content"), Sight.FILES, Sight.DIGESTS).files
    assert (body.is_body, file.is_body) == (True, False)
    assert (file.name, file.sha256) == ("tool.bin", hashlib.sha256(b"content").hexdigest())
    assert (file.sha1, file.md5) == (hashlib.sha1(b"content").hexdigest(), hashlib.md5(b"content").hexdigest())


def test_files_inside_archives_are_seen_with_their_digests():
    packed = archive(tool_exe=b"program", deeper_zip=archive(inner_js=b"script"))
    _, file = sight(attached("all.zip", packed), Sight.FILES, Sight.INSIDE, Sight.DIGESTS).files
    found = {inner.name: (inner.sha256, inner.md5) for inner in file.inside}
    assert found["tool.exe"] == (hashlib.sha256(b"program").hexdigest(), hashlib.md5(b"program").hexdigest())
    assert "inner.js" in found


def test_names_inside_a_document_mean_nothing_but_its_files_are_seen():
    _, file = sight(attached("report.docx", archive(word_bin=b"x")), Sight.FILES, Sight.INSIDE).files
    assert [(inner.name, inner.sha256) for inner in file.inside] == [("", hashlib.sha256(b"x").hexdigest())]


def test_the_end_of_a_long_name_is_kept():
    _, *files = sight(attached("a" * 2_000 + ".exe", b"x"), Sight.FILES).files
    assert all(file.name.endswith(".exe") for file in files)


def test_every_sender_of_every_from_is_seen():
    raw = b"From: a@one.example, b@two.example\r\nFrom: c@three.example\r\n" + text("x")[6 + 24 :]
    assert {"a@one.example", "b@two.example", "c@three.example"} <= set(sight(raw, Sight.SENDERS).senders)


def test_every_subject_is_seen():
    raw = b"Subject: minutes\r\n" + text("hello").replace(b"Subject: s", b"subject: =?utf-8?q?You_have_won?=")
    assert sight(raw, Sight.SUBJECTS).subjects == ("minutes", "You have won")
    assert sight(raw, Sight.SENDERS).subjects == ()


@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_what_becomes_a_link_without_a_scheme_is_a_link_in_a_body(kind):
    seen = sight(
        text("Pay at evil-pay.com/now, or at Other.co.uk. Not ann@mail.com, a.b or notes.pdf", kind), Sight.URLS
    )
    assert seen.urls == ("http://evil-pay.com/now", "http://Other.co.uk")


def test_names_of_other_alphabets_become_links_in_both_spellings():
    seen = sight(text("пример.рф or xn--e1afmkfd.xn--p1ai"), Sight.URLS)
    assert seen.urls == ("http://пример.рф", "http://xn--e1afmkfd.xn--p1ai")


def test_a_name_in_the_query_of_another_link_is_no_link():
    assert sight(text("see https://a.example/?to=evil-pay.com today"), Sight.URLS).urls == (
        "https://a.example/?to=evil-pay.com",
    )


def test_a_long_log_has_not_too_many_links_and_hides_none():
    seen = sight(text(" ".join(f"module{n}.py" for n in range(1_500)) + " https://evil-pay.com/now"), Sight.URLS)
    assert seen.urls[0] == "https://evil-pay.com/now"


def test_names_in_a_file_become_no_links():
    raw = text("evil-pay.com", "text/csv").replace(b"\r\n\r\n", b"\r\nContent-Disposition: attachment\r\n\r\n")
    assert sight(raw, Sight.URLS).urls == ()


def test_hops_are_followed_until_one_names_no_address():
    hops = (
        b"Received: from a.example (a.example [192.0.2.1]) by b.example (Postfix) with ESMTP id 1; x\r\n"
        b"Received: from c.example (unknown [IPv6:2001:db8::7])\r\n by d.example (Postfix) with ESMTP id 2; x\r\n"
        b"Received: by local with LMTP; x\r\nReceived: from e.example ([192.0.2.9]) by f.example with esmtp; x\r\n"
    )
    assert sight(hops + text("x"), Sight.RELAYS).relays == ("192.0.2.1", "2001:db8::7")
