"""Reads the source of a PDF: values, objects by number, and streams (ISO 32000-1, sections 7.3 and 7.4).

Security: hostile bytes; objects and bytes are bounded by the message's limits, every filter stops at a limit, every
pattern is linear. A stream that cannot be decoded raises `Undecodable`; nothing else raises.
"""

import binascii
import re
import zlib
from collections.abc import Iterator, Sequence

from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE, Place

_BLANK = re.compile(rb"(?:[\0\t\n\f\r ]|%[^\r\n]*)*")
_REFERENCE = re.compile(rb"(\d{1,10})[\0\t\n\f\r ]{1,9}\d{1,5}[\0\t\n\f\r ]{1,9}R(?![A-Za-z0-9])")
_PAREN = re.compile(rb"\\.|[()]", re.DOTALL)
_MARK = re.compile(rb"\\.|[()]|<<|>>", re.DOTALL)
_BACKSLASH = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.DOTALL)
_NOT_HEX = re.compile(rb"[^0-9a-fA-F]")
_ESCAPE = re.compile(rb"#([0-9a-fA-F]{2})")
ESCAPED_NAME = re.compile(rb"/[A-Za-z0-9]{0,30}#[0-9a-fA-F]{2}[A-Za-z0-9#]{0,60}")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"\n": b"", b"\r": b"", b"\r\n": b""}


def skip_blank(text: bytes, position: int) -> int:
    """Return where the next token begins, behind white space and comments."""
    found = _BLANK.match(text, position)
    return found.end() if found else position


def read_reference(text: bytes, position: int) -> bytes:
    """Return the number of the object that is named there, or b""."""
    found = _REFERENCE.match(text, position)
    return found[1].lstrip(b"0") or b"0" if found else b""


def read_string(text: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    """Return the string that begins there and where it ends; None if there is none, or it has no end."""
    if text[position : position + 1] == b"(":
        return _read_literal(text, position + 1, limit)
    if text[position : position + 1] == b"<" and text[position + 1 : position + 2] != b"<":
        end = text.find(b">", position, position + 2 * limit)
        if end > 0:
            digits = _NOT_HEX.sub(b"", text[position + 1 : end])
            return binascii.unhexlify(digits + b"0" * (len(digits) % 2)), end + 1
    return None, position


def _read_literal(text: bytes, start: int, limit: int) -> tuple[bytes | None, int]:
    """Read up to the parenthesis that closes the string; inner ones are balanced, or escaped."""
    depth = 1
    for mark in _PAREN.finditer(text, start, start + limit):
        depth += (mark[0] == b"(") - (mark[0] == b")")
        if depth == 0:
            return _BACKSLASH.sub(_unescaped, text[start : mark.start()]), mark.end()
    return None, start


def _unescaped(escaped: re.Match[bytes]) -> bytes:
    code = escaped[1]
    if b"0" <= code[:1] < b"8":
        return bytes([int(code, 8) & 0xFF])
    return _ESCAPED.get(code, code)


def decode_string(data: bytes) -> str:
    """Return the text of a string: UTF-16 or UTF-8 by its byte order mark, else as if it were Latin-1."""
    if data.startswith((b"\xfe\xff", b"\xff\xfe")):
        return data.decode("utf-16", "replace")
    if data.startswith(b"\xef\xbb\xbf"):
        return data[3:].decode("utf-8", "replace")
    return data.decode("latin-1")


def unescape_name(name: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), name)


def unescape_names(text: bytes) -> bytes:
    """Return a source with every name written plainly."""
    return ESCAPED_NAME.sub(lambda match: unescape_name(match[0]), text)


def dictionary_at(text: bytes, start: int, limit: int) -> bytes:
    """Return the dictionary that begins there; brackets inside strings do not count."""
    depth = strings = 0
    for mark in _MARK.finditer(text, start, start + limit):
        if mark[0] in (b"(", b")"):
            strings = max(strings + (1 if mark[0] == b"(" else -1), 0)
        elif not strings and mark[0] in (b"<<", b">>"):
            depth += 1 if mark[0] == b"<<" else -1
            if depth == 0:
                return text[start : mark.end()]
    return text[start : start + limit]


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
            digits = _NOT_HEX.sub(b"", data.partition(b">")[0])
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


_DEFINITION = re.compile(rb"(?<![0-9])(\d{1,10})\s{1,9}\d{1,5}\s{1,9}$")
_BEFORE = 40  # bytes before "obj" in which its number stands
_SCRIPT = re.compile(rb"/JS(?![A-Za-z0-9])")
_STREAM = re.compile(rb"\bstream(?:\r\n|\n|\r|(?=[^\s]))")
_NUMBERS = re.compile(rb"\s{0,9}(?:\d{1,10}\s{1,9}\d{1,10}\s{1,9})+")


class PdfObjects:
    """Finds objects in the sources of a document, and in its object streams, which are given decoded."""

    def __init__(
        self,
        sources: Sequence[bytes],
        packed: Sequence[bytes] = (),
        coverage: Coverage | None = None,
        place: Place = WHOLE_MESSAGE,
    ) -> None:
        self.coverage = coverage or Coverage()
        self.place = place
        self.limits = self.coverage.limits
        self._sources = tuple(sources)
        self._packed = tuple(packed)
        self._index: dict[bytes, list[tuple[bytes, int, bool]]] | None = None
        self._found: dict[bytes, bytes] = {}
        self._room = self.limits.pdf_unpacked

    def find(self, number: bytes) -> bytes:
        """Return an object by its number; of one that is defined several times, all definitions."""
        if number not in self._found:
            found = b"\n".join(self._definitions(number))
            self._room -= len(found)
            self._found[number] = found
        return self._found[number]

    def dictionary(self, text: bytes, start: int) -> bytes:
        found = dictionary_at(text, start, self.limits.pdf_dictionary)
        if len(found) >= self.limits.pdf_dictionary:
            self.coverage.beyond("pdf_dictionary", self.place)
        return found

    def string(self, text: bytes, position: int) -> str | None:
        """Return the string that stands there or in the object that is named there; None if there is none."""
        position = skip_blank(text, position)
        if number := read_reference(text, position):
            text, position = self.find(number), 0
            position = skip_blank(text, 0)
        data = self._read_string(text, position)
        return None if data is None else decode_string(data)

    def _read_string(self, text: bytes, position: int) -> bytes | None:
        """Return the string that stands there; one that is longer than a script may be is recorded as missed."""
        data, _ = read_string(text, position, self.limits.pdf_script)
        if (
            data is None
            and text[position : position + 1] in (b"(", b"<")
            and len(text) - position > self.limits.pdf_script
        ):
            self.coverage.beyond("pdf_script", self.place)
        return data

    def scripts(self, action: bytes) -> Iterator[str]:
        """Yield the scripts in an object, or in the objects that it names; "" for one that cannot be read."""
        for key in self.coverage.first(_SCRIPT.finditer(action), "pdf_scripts", self.place):
            position = skip_blank(action, key.end())
            if number := read_reference(action, position):
                yield self._script_of(self.find(number))
            else:
                data = self._read_string(action, position)
                yield decode_string(data) if data else ""

    def _script_of(self, item: bytes) -> str:
        """Return the script in an object: a string, or a stream that is decoded."""
        start = _STREAM.search(item)
        if start is None:
            data = self._read_string(item, skip_blank(item, 0))
            return decode_string(data) if data else ""
        body = item[start.end() :]
        end = body.rfind(b"endstream")
        try:
            decoded = decode_stream(item[: start.start()], body[: end if end >= 0 else None], self.limits.pdf_script)
        except TooLong:
            self.coverage.beyond("pdf_script", self.place)
            return ""
        except Undecodable:
            return ""
        return decode_string(decoded)

    def _definitions(self, number: bytes) -> Iterator[bytes]:
        if self._index is None:
            self._index = self._build_index()
        for source, start, is_packed in self._index.get(number, ()):
            if self._room <= 0:
                self.coverage.beyond("pdf_unpacked", self.place)
                return
            most = self.limits.pdf_dictionary if is_packed else self.limits.pdf_script
            end = -1 if is_packed else source.find(b"endobj", start, start + most)
            if end < 0 and start + most < len(source) and _STREAM.search(source, start, start + most) is None:
                self.coverage.beyond("pdf_dictionary", self.place)
            yield source[start : end if end >= 0 else start + most]

    def _build_index(self) -> dict[bytes, list[tuple[bytes, int, bool]]]:
        index: dict[bytes, list[tuple[bytes, int, bool]]] = {}
        found = (each for source in self._sources for each in _numbered(source))
        for number, source, start in self.coverage.first(found, "pdf_objects", self.place):
            index.setdefault(number, []).append((source, start, False))
        for text in self._packed:
            if head := _NUMBERS.match(text):
                pairs = head[0].split()
                for name, offset in zip(pairs[::2], pairs[1::2], strict=False):
                    index.setdefault(name, []).append((text, head.end() + int(offset), True))
        # Of an object that is written again and again, readers take one of the last; the first is what it was.
        return {
            number: places if len(places) <= self.limits.pdf_definitions else self._cut(places)
            for number, places in index.items()
        }

    def _cut(self, places: list[tuple[bytes, int, bool]]) -> list[tuple[bytes, int, bool]]:
        self.coverage.beyond("pdf_definitions", self.place)
        return places[-self.limits.pdf_definitions :]


def _numbered(source: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the number of each object that a source defines, and where its content begins."""
    position = source.find(b"obj")
    while position >= 0:
        if before := _DEFINITION.search(source[max(position - _BEFORE, 0) : position]):
            yield before[1].lstrip(b"0") or b"0", source, position + 3
        position = source.find(b"obj", position + 3)
