"""Archives are opened in memory, under limits, and what cannot be opened is told."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.message.archive_kinds import archive_kind
from mailwarden.message.archives import open_archive
from mailwarden.message.limits import Limits
from torture.bombs import nested_zip, overlapping_zip, packed


def _tar(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def test_a_zip_lists_its_files_with_size_and_digest():
    report = open_archive("a.zip", packed({"b.exe": b"MZ" + bytes(10), "c/d.txt": b"text"}))
    assert [(member.path, member.size, member.head[:2]) for member in report.members] == [
        ("a.zip > b.exe", 12, b"MZ"),
        ("a.zip > c/d.txt", 4, b"te"),
    ]
    assert len(report.members[0].sha256) == 64
    assert (report.kind, report.encrypted, report.tripped, report.unreadable) == ("zip", False, (), ())


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_what_is_compressed_is_opened_and_looked_into(compress):
    report = open_archive("a", compress(_tar({"b.exe": b"MZ"})))
    assert report.members[-1].path == "a > a > b.exe"


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("a.svgz", "a.svg"), ("A.SVGZ", "A.svg"), ("a.html.gz", "a.html"), ("a.tgz", "a.tar"), ("a.svg", "a.svg"),
        ("a", "a"), (".gz", ".gz"), ("", "attachment"),
    ],
)  # fmt: skip
def test_what_is_compressed_is_called_as_it_is_when_unpacked(name, inner):
    content = gzip.compress(b"<svg/>")
    assert open_archive(name, content).members[0].path == f"{name or 'attachment'} > {inner}"
    nested = open_archive("b.zip", packed({f"c/{name}x.svgz": content}))
    assert nested.members[-1].path == f"b.zip > c/{name}x.svgz > c/{name}x.svg"


def test_nested_archives_are_opened_with_their_path():
    report = open_archive("a.zip", packed({"b.zip": packed({"c.exe": b"MZ"})}))
    assert [member.path for member in report.members] == ["a.zip > b.zip", "a.zip > b.zip > c.exe"]


def test_zips_behind_each_other_are_both_looked_into():
    first, second, empty = packed({"b.js": b"x"}), packed({"c.txt": b"y"}), packed({})
    report = open_archive("a.zip", first + second)
    assert [member.path for member in report.members] == ["a.zip > c.txt", "a.zip > b.js"]
    assert report.joined
    assert [member.path for member in open_archive("a.zip", first + empty).members] == ["a.zip > b.js"]
    assert open_archive("a.zip", first * 5_000).joined


@pytest.mark.parametrize("content", [packed({"b.zip": packed({"c.js": b"x"})}), b"MZ" + bytes(99) + packed({"a": b""})])
def test_a_zip_within_another_and_one_behind_a_program_are_not_joined(content):
    assert not open_archive("a.zip", content).joined


def test_nesting_beyond_the_limit_trips():
    assert open_archive("a.zip", nested_zip(8)).tripped == ()
    assert "nested" in open_archive("a.zip", nested_zip(9)).tripped[0]


def test_a_ratio_beyond_the_limit_trips():
    assert "times its size" in open_archive("a.zip", packed({"a": bytes(20 * 1024 * 1024)})).tripped[0]
    assert "times its size" in open_archive("a.gz", gzip.compress(bytes(20 * 1024 * 1024))).tripped[0]
    assert open_archive("a.zip", packed({"a": bytes(500_000)})).tripped == ()


def test_overlapping_files_are_refused():
    assert "overlap" in open_archive("a.zip", overlapping_zip(10)).tripped[0]


def test_too_many_files_trip():
    assert (
        "files"
        in open_archive("a.zip", packed({str(number): b"" for number in range(30)}), Limits(archive_files=20)).tripped[
            0
        ]
    )


def test_too_many_bytes_trip():
    content = packed({"a": b"x" * 1_000, "b": b"y" * 1_000})
    assert "larger" in open_archive("a.zip", content, Limits(archive_member=500)).tripped[0]
    assert "more than 1,500" in open_archive("a.zip", content, Limits(archive_bytes=1_500)).tripped[0]


def test_an_encrypted_file_is_told_by_its_flag():
    content = bytearray(packed({"secret.exe": b"x" * 50}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    report = open_archive("a.zip", bytes(content))
    assert report.encrypted
    assert report.members[0].encrypted


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"Rar!\x1a\x07\x01\x00", "rar"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z"),
        (b"MSCF\x00\x00", "cab"),
        (b"1234567**ACE**", "ace"),
        (bytes(32_769) + b"CD001", "iso"),
    ],
)
def test_an_archive_that_is_not_opened_is_told(content: bytes, kind: str):
    report = open_archive("x", content)
    assert report.kind == kind
    assert kind in report.unreadable[0]


def test_a_broken_zip_is_unreadable_and_no_error():
    content = packed({"a.exe": b"x" * 500})
    assert open_archive("a.zip", content[:40]).unreadable
    damaged = content.replace(b"PK\x01\x02", b"PK\x01\x09")
    assert open_archive("a.zip", damaged).unreadable


def test_a_zip_behind_other_bytes_is_recognised():
    assert archive_kind(b"GIF89a" + packed({"a.exe": b"MZ"})) == "zip"
    report = open_archive("a.gif", b"GIF89a" + packed({"a.exe": b"MZ"}))
    assert report.members[0].path == "a.gif > a.exe"


def test_text_is_no_archive():
    assert open_archive("a.txt", b"hello").kind == ""


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_damaged_archives_raise_nothing(tail: bytes, position: int, value: int):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a.txt", b"hello")
    content = bytearray(target.getvalue())
    content[position % len(content)] = value
    open_archive("a", bytes(content) + tail)
    open_archive("a", b"\x1f\x8b\x08" + tail)
    open_archive("a", b"\xfd7zXZ\x00" + tail)
