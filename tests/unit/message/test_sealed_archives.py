"""Archives that are not opened tell the names of their files, and broken ones end the listing."""

import bz2
import lzma
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.message.archives import open_archive
from mailwarden.message.sealed_archives import Listing, list_names

NAMES = "invoice.exe\0b.txt\0".encode("utf-16-le")
HEADER = b"\x01\x04\x06\x00\x01\x09\x48\x00\x05\x02\x11" + bytes([len(NAMES) + 1, 0]) + NAMES + b"\x14\x0a\x01\x00\0\0"
LZMA = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 3, "lp": 0, "pb": 2}]
PACKED = lzma.compress(HEADER, format=lzma.FORMAT_RAW, filters=LZMA)
ENCODED = bytes([0x17, 6, 0, 1, 9, len(PACKED), 0, 7, 0x0B, 1, 0, 1, 0x23, 3, 1, 1, 5, 0x5D]) + struct.pack(
    "<I", 1 << 16
)


def encoded(packed, coder):
    """Return the header that tells how the true one is packed, by one coder without properties."""
    head = bytes([0x17, 6, 0, 1, 9, len(packed), 0, 7, 0x0B, 1, 0, 1, len(coder)])
    return head + coder + b"\x0c\x20\0\0"


def seven_zip(body, header):
    return b"7z\xbc\xaf\x27\x1c\0\4" + bytes(4) + struct.pack("<QQ", len(body), len(header)) + bytes(4) + body + header


def rar5(name, *, encrypted=False):
    extra = b"\x02\x01\x00" if encrypted else b""
    head = bytes([2, 1, len(extra)]) if encrypted else bytes([2, 0])
    head += bytes([0, 5, 0x20, 0, 1, len(name)]) + name + extra
    return bytes(4) + bytes([len(head)]) + head


def rar4(name, flags=0):
    fields = struct.pack("<IIBIIBBHI", 3, 3, 2, 0, 0, 29, 0x30, len(name), 32)
    return b"\0\0\x74" + struct.pack("<HH", 0x8000 | flags, 32 + len(name)) + fields + name + b"abc"


def cab(*names):
    files = b"".join(bytes(16) + name + b"\0" for name in names)
    return b"MSCF" + bytes(12) + struct.pack("<I", 44) + bytes(8) + struct.pack("<H", len(names)) + bytes(14) + files


MAIN4 = b"Rar!\x1a\x07\x00\0\0\x73"
ARCHIVES = {
    "7z": seven_zip(b"abc", HEADER),
    "7z with a packed header": seven_zip(PACKED, ENCODED + b"\x0c\x20\0\0"),
    "cab": cab(b"invoice.exe", b"b.txt"),
    "rar 5": b"Rar!\x1a\x07\x01\x00" + rar5(b"invoice.exe") + rar5(b"b.txt"),
    "rar 4": MAIN4 + struct.pack("<HH", 0, 13) + bytes(6) + rar4(b"invoice.exe") + rar4(b"b.txt"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_names_of_files_are_told(name):
    assert list_names(name.split()[0], ARCHIVES[name]) == Listing(("invoice.exe", "b.txt"))
    report = open_archive("a", ARCHIVES[name])
    assert [member.path for member in report.members] == ["a > invoice.exe", "a > b.txt"]
    assert "which is not opened" in report.unreadable[0]


@pytest.mark.parametrize(
    "content",
    [
        b"Rar!\x1a\x07\x01\x00" + rar5(b"b.txt", encrypted=True),
        b"Rar!\x1a\x07\x01\x00" + bytes(4) + b"\x02\x04\x00",
        MAIN4 + struct.pack("<HH", 0x80, 13) + bytes(6),
        MAIN4 + struct.pack("<HH", 0, 13) + bytes(6) + rar4(b"b.txt", 4),
        seven_zip(b"", b"\x17\x06" + bytes.fromhex("06f10701")),
    ],
)
def test_encryption_is_told(content):
    assert open_archive("a", content).encrypted


def deflated(header):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(header) + packer.flush()


@pytest.mark.parametrize(
    ("pack", "coder"), [(bytes, b"\0"), (bz2.compress, b"\x04\x02\x02"), (deflated, b"\x04\x01\x08")]
)
def test_a_header_is_read_however_7_zip_reads_it(pack, coder):
    packed = pack(HEADER)
    assert list_names("7z", seven_zip(packed, encoded(packed, coder))).names == ("invoice.exe", "b.txt")
    inner = encoded(packed, coder)
    offset = bytes([0x17, 6, len(packed), 1, 9, len(inner), 0, 7, 0x0B, 1, 0, 1, 1, 0, 0x0C, 0x20, 0, 0])
    assert list_names("7z", seven_zip(packed + inner, offset)).names == ("invoice.exe", "b.txt")


def test_an_archive_that_tells_no_names_is_said_to_be_closed():
    packed = bytes(20)
    report = open_archive("a.7z", seven_zip(packed, encoded(packed, b"\x03\x04\x01")))
    assert report.members == ()
    assert report.unreadable == (
        "a.7z is a 7z archive, which cannot be looked into: not even the names of its files are told.",
    )


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "cab"])
def test_what_stands_before_an_archive_hides_nothing(name):
    for called in ("a.rar", "a.7Z"):
        report = open_archive(called, b"Dear Bob, " * 50 + ARCHIVES[name])
        assert [member.path for member in report.members] == [f"{called} > invoice.exe", f"{called} > b.txt"]
    assert open_archive("a.txt", b"Dear Bob, " * 50 + ARCHIVES[name]).kind == ""
    assert open_archive("a.rar", b"Dear Bob, " * 500_000 + ARCHIVES[name]).kind == ""


@pytest.mark.parametrize(
    ("wide", "shown"),
    [
        (b"\0\0invo\0ice.\0exe", "invoice.exe"),
        (b"\0\xc0\x03", "a.txt"),
        (b"\x04\x50\x10\x11ab\0c", "\u0410\u0411abc"),
        (b"\0\x80\x10\x04x", "\u0410x"),
        (b"\4\xc0\x80\1", "\u0462\u042f"),
        (b"\0\x80\0\xd8", "\ufffd"),
        (b"\0", "a.txt"),
    ],
)
def test_the_name_of_a_rar_is_the_one_that_is_shown(wide, shown):
    content = MAIN4 + struct.pack("<HH", 0, 13) + bytes(6) + rar4(b"a.txt\0" + wide, 0x200)
    assert list_names("rar", content) == Listing((shown,))


@settings(deadline=None)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(0, 200), st.binary(min_size=1, max_size=40))
def test_nothing_breaks_the_listing(name, place, noise):
    content = ARCHIVES[name]
    for broken in (content[:place] + noise + content[place + len(noise) :], content[:place], content[:8] + noise):
        list_names(name.split()[0], broken)
