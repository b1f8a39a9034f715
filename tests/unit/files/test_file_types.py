"""A file is known by its first bytes and by its name, and one that pretends is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.analyzers.attachments import AttachmentsAnalyzer
from mailwarden.analysis.view import View
from mailwarden.files.file_types import (
    has_double_ending,
    keeps_promise,
    kind_by_content,
    kind_by_name,
)
from mailwarden.message.file_names import ending_of
from mailwarden.message.message import Message, Part

PROGRAM = b"MZ" + b"\0" * 100


def found(name: str, content: bytes, media_type: str = "application/octet-stream") -> set[str]:
    part = Part("1", media_type, name, "attachment", "", content, "")
    return {finding.name for finding in AttachmentsAnalyzer().examine(View(Message(0, "", (), (part,))))}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PROGRAM, "program"),
        (b"\x7fELF\x02", "program"),
        (b"\xcf\xfa\xed\xfe", "program"),
        (b"%PDF-1.7", "pdf"),
        (b"L\x00\x00\x00\x01\x14\x02\x00", "shortcut"),
        (b"\xef\xbb\xbf  <!DOCTYPE html>", "web page"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
        (b"MZ is how this text begins", ""),
        (b"", ""),
    ],
)
def test_the_first_bytes_identify_the_type(head, kind):
    assert kind_by_content(head) == kind


@pytest.mark.parametrize("name", ["a.exe", "A.EXE", "a.exe.", "a.exe  ", "a.b.scr", "x.lnk", "x.iso", "x.hta", "x.js"])
def test_a_dangerous_ending_is_seen_as_windows_reads_it(name):
    assert kind_by_name(name)


@pytest.mark.parametrize("name", ["a.pdf", "exe", ".exe", "a.exe.pdf", "", "a"])
def test_a_harmless_name_is_not_dangerous(name):
    assert not kind_by_name(name)


def test_a_double_ending_needs_a_dangerous_one_behind_a_harmless_one():
    assert has_double_ending("invoice.pdf.exe")
    assert has_double_ending("invoice.pdf.exe. ")
    assert not has_double_ending("setup.v2.exe")
    assert not has_double_ending("archive.tar.gz")
    assert ending_of("no ending") == ""


def test_images_with_swapped_extensions_are_harmless():
    assert keeps_promise("a.jpg", "png")
    assert not keeps_promise("a.jpg", "program")
    assert keeps_promise("a.unknown", "program")


def test_a_program_called_a_document_is_disguised():
    assert found("invoice.pdf", PROGRAM) == {"attachments.executable-type-mismatch"}
    assert found("setup.exe", PROGRAM) == {"attachments.executable"}
    assert found("", PROGRAM) == {"attachments.executable"}


def test_a_program_in_a_body_without_a_name_is_seen():
    part = Part("0", "text/plain", "", "", "", PROGRAM, "")
    found = AttachmentsAnalyzer().examine(View(Message(0, "", (), (part,))))
    assert [finding.name for finding in found] == ["attachments.executable"]


def test_office_documents_with_a_password_are_seen():
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
    assert found("a.docx", ole + "EncryptedPackage".encode("utf-16-le")) == {"attachments.encrypted-archive"}
    assert found("a.doc", ole) == set()


@given(st.sampled_from(["a.zip", "a.pdf", "a.docx", "", "a\u202etxt.exe"]), st.binary(max_size=200))
def test_no_content_breaks_the_analyzer(name, rest):
    for start in (b"", b"PK\x03\x04", b"\x1f\x8b\x08", b"MZ", b"%PDF-", b"7z\xbc\xaf'\x1c"):
        found(name, start + rest)
