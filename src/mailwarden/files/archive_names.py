"""Reads the names in the directory of an archive without unpacking it: 7z, RAR 4 and 5, and CAB.

They are read of archives that libarchive rejects: a name is enough to recognise a program and to match a list.

Security: every number is checked against the archive, unpacking is bounded, and damage ends a list instead of raising.
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress

from mailwarden.message.limits import LIMITS

_MAX_NUMBER = 1 << 62  # not inspection: larger than any file
_AES = bytes.fromhex("06f10701")
_NAMES = b"\x11"
_LZMA, _LZMA2 = bytes.fromhex("030101"), b"\x21"
_COPY, _DEFLATE, _BZIP2 = b"\0", bytes.fromhex("040108"), bytes.fromhex("040202")


class _Cut(Exception):
    """The archive ends before it should."""


def list_names(kind: str, content: bytes) -> Iterator[str]:
    """Yield the names in the directory of an archive, without unpacking it."""
    if kind == "7z":
        return _list_7z(content)
    if kind == "cab":
        return _list_cab(content)
    if content.startswith(b"Rar!\x1a\x07\x01\x00"):
        return _list_rar5(content)
    return _list_rar4(content) if kind == "rar" else iter(())


def hides_names(kind: str, content: bytes) -> bool:
    """Return whether the directory is encrypted as well; libarchive calls such an archive damaged."""
    if kind == "7z":
        start = 32 + min(int.from_bytes(content[12:20], "little"), _MAX_NUMBER)
        return _AES in content[start:]
    if content.startswith(b"Rar!\x1a\x07\x01\x00"):
        with suppress(_Cut):
            numbers = _Numbers(content, 12)
            numbers.five()
            return numbers.five() == 4
    return kind == "rar" and content[9:10] == b"\x73" and bool(content[10] & 0x80)


class _Numbers:
    """Reads numbers of 7z and of RAR 5 from a position on."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        if count < 0 or self.position + count > len(self.data):
            raise _Cut
        self.position += count
        return self.data[self.position - count : self.position]

    def seven(self) -> int:
        """Read a number of 7z: the leading one bits of the first byte give the number of further bytes."""
        first = self.take(1)[0]
        more = 8 - (~first & 0xFF).bit_length() if first != 0xFF else 8
        low = int.from_bytes(self.take(more), "little")
        return low | (first & (0x7F >> more)) << (8 * more) if more < 8 else low

    def five(self) -> int:
        """Read a number of RAR 5: seven bits a byte, the lowest first."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _Cut


def _list_7z(content: bytes) -> Iterator[str]:
    start = 32 + min(int.from_bytes(content[12:20], "little"), _MAX_NUMBER)
    header = content[start : start + min(int.from_bytes(content[20:28], "little"), _MAX_NUMBER)]
    with suppress(_Cut, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError, OverflowError):
        for _ in range(LIMITS.container_depth):  # a header may be packed more than once
            if header[:1] != b"\x17":
                break
            header = _unpack_header(content, header)
    return _names_7z(header)


def _names_7z(header: bytes) -> Iterator[str]:
    """Find the property with the names by its mark and its form, so that those before it need not be understood."""
    position = header.find(_NAMES)
    while position >= 0:
        with suppress(_Cut):
            numbers = _Numbers(header, position + 1)
            text = numbers.take(numbers.seven())
            if len(text) > 4 and len(text) % 2 and text[0] == 0 and text.endswith(b"\0\0"):
                yield from filter(None, text[1:].decode("utf-16-le", "replace").split("\0"))
                return
        position = header.find(_NAMES, position + 1)


def _unpack_header(content: bytes, header: bytes) -> bytes:
    """Unpack a packed header that one coder made, which is how every packer writes it."""
    numbers = _Numbers(header, 1)
    numbers.take(1)
    offset = numbers.seven()
    numbers.seven()
    numbers.take(1)
    size = numbers.seven()
    numbers.take(3)  # the end of this block, the beginning of the next, folders follow
    numbers.seven()
    numbers.take(1)
    if numbers.seven() != 1:
        raise _Cut
    flags = numbers.take(1)[0]
    coder = numbers.take(flags & 0x0F)
    properties = numbers.take(numbers.seven()) if flags & 0x20 else b""
    packed = content[32 + offset : 32 + offset + size]
    if coder == _COPY:
        return packed[: LIMITS.ratio_from]
    if coder == _DEFLATE:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, LIMITS.ratio_from)
    if coder == _BZIP2:
        return bz2.BZ2Decompressor().decompress(packed, LIMITS.ratio_from)
    decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[_filter(coder, properties)])
    return decoder.decompress(packed, LIMITS.ratio_from)


def _filter(coder: bytes, properties: bytes) -> dict[str, int]:
    if coder == _LZMA2:
        return {"id": lzma.FILTER_LZMA2, "dict_size": LIMITS.ratio_from}
    if coder != _LZMA or len(properties) < 5 or properties[0] >= 225:
        raise _Cut
    rest, lc = divmod(properties[0], 9)
    pb, lp = divmod(rest, 5)
    return {"id": lzma.FILTER_LZMA1, "dict_size": LIMITS.ratio_from, "lc": lc, "lp": lp, "pb": pb}


def _list_rar5(content: bytes) -> Iterator[str]:
    numbers = _Numbers(content, 8)
    with suppress(_Cut):
        while True:
            numbers.take(4)
            size = numbers.five()
            end = numbers.position + size
            kind, flags = numbers.five(), numbers.five()
            if flags & 1:
                numbers.five()
            data = numbers.five() if flags & 2 else 0
            if kind == 4:  # everything behind is encrypted, the names too
                return
            if kind == 2:
                yield _rar5_name(numbers)
            numbers.position = end + data


def _rar5_name(numbers: _Numbers) -> str:
    flags = numbers.five()
    numbers.five()
    numbers.five()
    numbers.take((4 if flags & 2 else 0) + (4 if flags & 4 else 0))
    numbers.five()
    numbers.five()
    return numbers.take(numbers.five()).decode("utf-8", "replace")


def _list_rar4(content: bytes) -> Iterator[str]:
    position = 7
    while position + 7 <= len(content):
        kind = content[position + 2]
        flags = int.from_bytes(content[position + 3 : position + 5], "little")
        size = int.from_bytes(content[position + 5 : position + 7], "little")
        data = int.from_bytes(content[position + 7 : position + 11], "little") if flags & 0x8000 else 0
        if size < 7 or (kind == 0x73 and flags & 0x80):  # the rest is encrypted
            break
        if kind == 0x74:
            length = int.from_bytes(content[position + 26 : position + 28], "little")
            start = position + (40 if flags & 0x100 else 32)
            yield _rar4_name(content[start : start + length])
        position += size + data


def _rar4_name(field: bytes) -> str:
    """Return the name that is shown: behind the plain one another may stand in a writing of its own."""
    plain, _, wide = field.partition(b"\0")
    if len(wide) < 2:
        return plain.decode("utf-8", "replace")
    high, shown, numbers = wide[0] << 8, "", _Numbers(wide, 1)
    with suppress(_Cut):
        while True:
            flags = numbers.take(1)[0]
            for shift in (6, 4, 2, 0):
                shown += _rar4_letters(flags >> shift & 3, high, numbers, plain[len(shown) :])
    return shown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _rar4_letters(how: int, high: int, numbers: _Numbers, rest: bytes) -> str:
    """Return the next letters: one of one byte, one beside the others, one of two bytes, or some of the plain name."""
    first = numbers.take(1)[0]
    if how == 0:
        return chr(first)
    if how == 1:
        return chr(high | first)
    if how == 2:
        return chr(first | numbers.take(1)[0] << 8)
    if first & 0x80:
        shift = numbers.take(1)[0]
        return "".join(chr(high | (byte + shift & 0xFF)) for byte in rest[: (first & 0x7F) + 2])
    return rest[: first + 2].decode("latin-1")


def _list_cab(content: bytes) -> Iterator[str]:
    """Go over the entries of a cabinet: sixteen bytes each, and a name that ends with a zero."""
    position = int.from_bytes(content[16:20], "little")
    for _ in range(int.from_bytes(content[28:30], "little")):
        end = content.find(b"\0", position + 16)
        if end < 0:
            break
        yield content[position + 16 : end].decode("utf-8", "replace")
        position = end + 1
