"""Varied messages of the benchmarks: other digests in every part, the same form, the same findings."""

import base64
import email
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from mailwarden.model.envelope import Envelope
from mailwarden.pipeline.worker_steps import Job, run_steps
from workshop.bench.messages import make_message
from workshop.bench.variation import Variation, vary, words

GOOD_MAIL = sorted((Path(__file__).parents[3] / "tests" / "good_mail").glob("*.eml"))
SAMPLES = sorted((Path(__file__).parents[3] / "tests" / "analyzers").glob("*/*.eml"))
ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.5", "mail.sender.example")


def parts(raw: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield type, encoding and decoded content of each part that holds content."""
    for part in email.message_from_bytes(raw).walk():
        content = b"" if part.is_multipart() else part.get_payload(decode=True)
        assert isinstance(content, bytes)
        yield part.get_content_type(), str(part.get("Content-Transfer-Encoding")), content


def findings(raw: bytes) -> list[tuple[str, str]]:
    """Return the findings, without that of a message with next to no words: variation adds some."""
    reports = [frame.report for frame in run_steps(Job(raw, envelope=ENVELOPE))]
    found = (finding for report in reports for finding in report.findings if finding.name != "urls.link-only")
    return sorted((finding.name, str(finding.place)) for finding in found)


def assert_varied(raw: bytes, first: bytes, second: bytes) -> None:
    triples = list(zip(parts(raw), parts(first), parts(second), strict=True))
    for before, one, other in triples:
        assert before[:2] == one[:2] == other[:2], "structure"
        if before[2].strip():
            assert len({hashlib.sha256(content).digest() for *_, content in (before, one, other)}) == 3, before[:2]
            assert 0 < len(one[2]) - len(before[2]) < 80, before[:2]
    assert any(before[2].strip() for before, *_ in triples)
    for name in ("Message-ID", "Date"):
        was, now = email.message_from_bytes(raw)[name], email.message_from_bytes(first)[name]
        assert was is None or len(was) == len(now)


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, kind)
    return file.getvalue()


def document() -> bytes:
    file = io.BytesIO()
    pdf = pypdfium2.PdfDocument.new()
    pdf.new_page(300, 400)
    pdf.save(file)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("minutes.txt", "The minutes of the meeting\n" * 20)
    return file.getvalue()


FILES = {
    "image/png": picture("PNG"),
    "image/jpeg": picture("JPEG"),
    "image/gif": picture("GIF"),
    "application/pdf": document(),
    "application/zip": archive(),
}


def message_with(kind: str, data: bytes) -> bytes:
    message = EmailMessage()
    message["From"] = "Ann Example <ann@sender.example>"
    message["To"] = "bob@corp.example"
    message["Subject"] = "Minutes of the meeting"
    message["Date"] = "Mon, 16 Nov 2026 10:20:30 +0000"
    message["Message-ID"] = "<4F1C-9a2b.77@mail.sender.example>"
    message.set_content("Dear Bob,\n\nthe minutes are attached.\n\nAnn\n")
    maintype, subtype = kind.split("/")
    message.add_attachment(data, maintype=maintype, subtype=subtype, filename=f"minutes.{subtype}")
    return message.as_bytes().replace(b"\n", b"\r\n")


@pytest.mark.parametrize("path", GOOD_MAIL, ids=lambda path: path.stem)
def test_every_part_of_good_mail_varies_and_findings_stay(path):
    raw = path.read_bytes()
    first, second = vary(raw, 17), vary(raw, 4242)
    assert_varied(raw, first, second)
    assert findings(raw) == findings(first) == findings(second)


@pytest.mark.parametrize("path", [path for path in SAMPLES if "winmail" not in path.stem], ids=lambda path: path.stem)
def test_findings_of_samples_stay(path):
    # An attachment winmail.dat has no place for bytes that readers ignore.
    raw = path.read_bytes()
    assert findings(raw) == findings(vary(raw, 17))


@pytest.mark.parametrize("kind", FILES)
def test_a_file_varies_and_opens_as_before(kind):
    raw = message_with(kind, FILES[kind])
    first, second = vary(raw, 1), vary(raw, 2)
    assert_varied(raw, first, second)
    assert findings(raw) == findings(first) == findings(second)
    data = list(parts(first))[-1][2]
    if kind.startswith("image/"):
        opened = Image.open(io.BytesIO(data))
        assert opened.tobytes() == Image.open(io.BytesIO(FILES[kind])).tobytes()
    elif kind == "application/pdf":
        assert pypdfium2.PdfDocument(data)[0].get_size() == (300, 400)
    else:
        assert zipfile.ZipFile(io.BytesIO(data)).testzip() is None


def test_generated_messages_vary():
    raw = make_message(3, 5_000)
    assert_varied(raw, vary(raw, 1), vary(raw, 2))


def test_base64_keeps_its_line_length_and_line_ends():
    raw = message_with("image/png", FILES["image/png"])
    lines = vary(raw, 5).split(b"\r\n")
    assert {len(line) for line in lines if line.startswith(base64.b64encode(FILES["image/png"])[:40])} == {76}
    assert not any(b"\n" in line for line in lines)


def test_incomplete_base64_varies_without_repair():
    head = b"From: a@sender.example\r\nContent-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    body = b"A" * 76 + b"\r\n" + b"B" * 37 + b"\r\n"  # one character too many
    first, second = vary(head + body, 1), vary(head + body, 2)
    assert first != second
    assert first.startswith(head + body[:78])
    assert first.endswith(body[78:])


def test_message_id_keeps_its_form():
    raw = message_with("image/png", FILES["image/png"])
    assert email.message_from_bytes(vary(raw, 9))["Message-ID"].endswith("@mail.sender.example>")
    made = {email.message_from_bytes(vary(raw, number))["Message-ID"] for number in range(50)}
    assert len(made) == 50
    for each in made:
        local = each[1:].partition("@")[0]
        assert re.fullmatch(r"[0-9][A-F][0-9][A-F]-[0-9][a-f][0-9][a-f]\.[0-9]{2}", local)


def test_no_message_of_a_size_comes_twice():
    kind = Variation([make_message(number, 2_000) for number in range(3)])
    rounds = [kind.take(40) for _ in range(3)]
    assert len({message for each in rounds for message in each}) == 120
    assert len({words(number) for number in range(100_000)}) == 100_000
