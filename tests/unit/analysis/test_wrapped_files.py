"""Files in winmail.dat and uuencoded text, whole, cut and hostile."""

import binascii
import struct

import pytest

from mailwarden.analysis.wrapped_files import MAX_FILES, TNEF, unwrap, wrapping_of

DATA = b"What a file holds. " * 10


def field(kind, value):
    return struct.pack("<BII", 2, kind, len(value)) + value + b"\0\0"


def winmail(*files):
    body = b"".join(
        field(0x00069002, b"\0" * 14) + field(0x00018010, name + b"\0") + field(0x0006800F, data)
        for name, data in files
    )
    return TNEF + b"\1\0" + body


def uuencoded(name, data):
    rows = b"".join(binascii.b2a_uu(data[start : start + 45]) for start in range(0, len(data), 45))
    return b"begin 644 " + name + b"\n" + rows + b"`\nend\n"


def test_the_files_of_a_winmail_come_out_with_their_names():
    assert list(unwrap(winmail((b"a.js", DATA), (b"b.txt", b"x")))) == [("a.js", DATA), ("b.txt", b"x")]


def test_uuencoded_files_come_out_with_their_names():
    text = b"Hello\n" + uuencoded(b"a.js", DATA) + b"and\n" + uuencoded(b"b.txt", b"x")
    assert list(unwrap(text)) == [("a.js", DATA), ("b.txt", b"x")]


def test_no_more_files_come_out_than_are_looked_at():
    assert len(list(unwrap(winmail(*[(b"a", b"b")] * (3 * MAX_FILES))))) <= MAX_FILES + 1


@pytest.mark.parametrize("content", [winmail((b"a.js", DATA)), uuencoded(b"a.js", DATA)])
def test_what_is_cut_anywhere_raises_nothing(content):
    for end in range(len(content)):
        for _, data in unwrap(content[:end]):
            assert len(data) <= len(DATA) + 45  # the rest of a row that was cut


def test_other_files_are_not_unwrapped():
    assert wrapping_of(b"we begin at 600 hours\n") == ""
    assert list(unwrap(b"\x89PNG")) == []
