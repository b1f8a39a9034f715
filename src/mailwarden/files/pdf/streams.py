"""Undoes the filters of a PDF stream, within a limit of bytes (ISO 32000-1, section 7.4).

Security: hostile bytes; every filter stops at a limit. A stream that cannot be decoded raises `Undecodable`; nothing
else raises.
"""

import re
import zlib
from collections.abc import Iterator

NOT_HEX = re.compile(rb"[^0-9a-fA-F]")
_NAME = re.compile(rb"/([A-Za-z0-9]{1,30})")
_FILTER_KEY = re.compile(rb"/(?:Filter|F)(?=[\s/\[])")
_NUMBER_KEYS = {
    key: re.compile(rb"/" + key + rb"\s{0,9}(\d{1,9})")
    for key in (b"Predictor", b"Columns", b"Colors", b"BitsPerComponent")
}
_EARLY_CHANGE = re.compile(rb"/EarlyChange\s{0,9}0")
_NOT_85 = re.compile(rb"[^!-uz]")
_SHORT_NAMES = {
    b"AHx": b"ASCIIHexDecode",
    b"A85": b"ASCII85Decode",
    b"LZW": b"LZWDecode",
    b"Fl": b"FlateDecode",
    b"RL": b"RunLengthDecode",
    b"DCT": b"DCTDecode",
    b"CCF": b"CCITTFaxDecode",
}


class Undecodable(Exception):
    """A stream whose filter is unknown, or whose content the filter cannot read."""


class TooLong(Exception):
    """A stream that decodes to more bytes than the limit."""


def filters_of(dictionary: bytes) -> tuple[bytes, ...]:
    """Return the names of the filters of a stream, in the order in which they are undone."""
    key = _FILTER_KEY.search(dictionary)
    if key is None:
        return ()
    rest = dictionary[key.end() :].lstrip()
    value = rest[1:].partition(b"]")[0] if rest.startswith(b"[") else rest[:1] + re.split(rb"[/>\s\[(<]", rest[1:])[0]
    return tuple(_SHORT_NAMES.get(name, name) for name in _NAME.findall(value))


def decode_stream(dictionary: bytes, data: bytes, limit: int) -> bytes:
    """Undo the filters of a stream, at most `limit` bytes of each."""
    for name in filters_of(dictionary):
        if name == b"FlateDecode":
            data = _predicted(dictionary, _inflate(data, limit))
        elif name == b"ASCIIHexDecode":
            digits = NOT_HEX.sub(b"", data.partition(b">")[0])
            data = bytes.fromhex((digits + b"0" * (len(digits) % 2)).decode("ascii"))
        elif name == b"ASCII85Decode":
            data = _decode_85(data)
        elif name == b"LZWDecode":
            early = 0 if _EARLY_CHANGE.search(dictionary) else 1
            data = _predicted(dictionary, _decode_lzw(data, limit, early))
        elif name == b"RunLengthDecode":
            data = _decode_runs(data, limit)
        elif name != b"Crypt":
            raise Undecodable(name.decode("ascii"))
    return data


def _inflate(data: bytes, limit: int) -> bytes:
    """Inflate as readers do: a stream that is damaged behind its beginning counts as far as it goes."""
    for window in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        start = 0 if window > 0 else 2  # a wrong header is skipped
        unpacker = zlib.decompressobj(window)
        out = bytearray()
        try:
            while start < len(data) and not unpacker.eof:
                out += unpacker.decompress(data[start : start + 65_536], limit + 1 - len(out))
                if len(out) > limit or unpacker.unconsumed_tail:
                    raise TooLong
                start += 65_536
        except zlib.error:
            pass
        if out:
            return bytes(out)
    if data.strip():
        raise Undecodable("FlateDecode")
    return b""


def _predicted(dictionary: bytes, data: bytes) -> bytes:
    """Undo a PNG or TIFF predictor (ISO 32000-1, 7.4.4.4)."""
    given = {key: int(found[1]) for key, pattern in _NUMBER_KEYS.items() if (found := pattern.search(dictionary))}
    predictor = given.get(b"Predictor", 1)
    if predictor < 2:
        return data
    colors, bits = given.get(b"Colors", 1), given.get(b"BitsPerComponent", 8)
    row = (given.get(b"Columns", 1) * colors * bits + 7) // 8
    step = max((colors * bits + 7) // 8, 1)
    if not 0 < row <= len(data) + 1:
        raise Undecodable("predictor")
    if predictor == 2:
        return _undo_tiff(data, row, step) if bits == 8 else data
    return b"".join(_undo_png(data, row, step))


def _undo_tiff(data: bytes, row: int, step: int) -> bytes:
    out = bytearray(data)
    for start in range(0, len(out), row):
        for place in range(start + step, min(start + row, len(out))):
            out[place] = (out[place] + out[place - step]) & 255
    return bytes(out)


def _undo_png(data: bytes, row: int, step: int) -> Iterator[bytes]:
    before = bytes(row)
    for start in range(0, len(data), row + 1):
        kind, line = data[start], bytearray(data[start + 1 : start + 1 + row])
        for place in range(len(line) if kind else 0):
            left = line[place - step] if place >= step else 0
            up = before[place]
            corner = before[place - step] if place >= step else 0
            line[place] = (line[place] + _prediction(kind, left, up, corner)) & 255
        before = bytes(line.ljust(row, b"\0"))
        yield bytes(line)


def _prediction(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 1:
        return left
    if kind == 2:
        return up
    if kind == 3:
        return (left + up) // 2
    if kind != 4:
        return 0
    guess = left + up - corner
    near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
    return near[2]


def _decode_85(data: bytes) -> bytes:
    text = _NOT_85.sub(b"", data.partition(b"~")[0])
    out = bytearray()
    group: list[int] = []
    for character in text:
        if character == 0x7A and not group:  # z stands for four zeros
            out += bytes(4)
            continue
        group.append((character - 33) % 85)
        if len(group) == 5:
            out += _word_of(group)
            group = []
    if len(group) > 1:
        out += _word_of([*group, *[84] * (5 - len(group))])[: len(group) - 1]
    return bytes(out)


def _word_of(group: list[int]) -> bytes:
    value = 0
    for digit in group:
        value = value * 85 + digit
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def _decode_lzw(data: bytes, limit: int, early: int) -> bytes:
    start = [bytes([value]) for value in range(256)] + [b"", b""]
    table, width, before = list(start), 9, b""
    out = bytearray()
    bits = held = 0
    for byte in data:
        bits, held = (bits << 8 | byte) & 0xFFFFFF, held + 8
        if held < width:
            continue
        held -= width
        code = bits >> held & ((1 << width) - 1)
        if code == 257:
            break
        if code == 256:
            table, width, before = list(start), 9, b""
            continue
        if code < len(table):
            entry = table[code]
        elif before:
            entry = before + before[:1]
        else:
            raise Undecodable("LZWDecode")
        out += entry
        if len(out) > limit:
            raise TooLong
        if before and len(table) < 4_096:
            table.append(before + entry[:1])
        before = entry
        width = min(max((len(table) + early).bit_length(), 9), 12)
    return bytes(out)


def _decode_runs(data: bytes, limit: int) -> bytes:
    out = bytearray()
    position = 0
    while position < len(data) and (length := data[position]) != 128:
        if length < 128:
            out += data[position + 1 : position + 2 + length]
            position += 2 + length
        else:
            out += data[position + 1 : position + 2] * (257 - length)
            position += 2
        if len(out) > limit:
            raise TooLong
    return bytes(out)
