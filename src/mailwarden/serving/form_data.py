"""Parses multipart/form-data as it arrives.

The grammar is that of RFC 2046, section 5.1.1: an ignored preamble and epilogue, blanks after a boundary, and part
headers that may be folded (RFC 5322, section 2.2.3). Lines end in CRLF. A part ends only at CRLF, two hyphens and the
whole boundary at the beginning of a line. Input that two parsers could read differently is rejected: other bytes after
a boundary on its line, a boundary in the epilogue, a body without its last boundary.

Security: reads hostile bytes. The search for a boundary keeps at most the boundary's length; headers, preamble and
epilogue are bounded.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from mailwarden.errors import MalformedMultipart, UnsupportedMediaType

MAX_HEADER_BYTES = 8_192
MAX_HEADERS = 16
MAX_AROUND = 8_192  # bytes of the preamble, and of the epilogue
MAX_PADDING = 256  # blanks after a boundary

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_OPTION = re.compile(rf';[ \t]*({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))[ \t]*', re.DOTALL)
_NO_OPTION = re.compile(r";[ \t]*(?=;|\Z)")  # HTTP permits a semicolon without an option after it
_FIELD_NAME = re.compile(_WORD)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BOUNDARY_WANTED = (
    "Content-Type gives no usable boundary: 1 to 70 characters of RFC 2046, in quotes where `=`, `:`, `/`, `?` or a "
    "space is among them."
)
_PADDING = re.compile(rb"[ \t]*")
_EPILOGUE = re.compile(rb"[ \t]*(?:\r\n.*)?", re.DOTALL)
_FOLD = re.compile(rb"\r\n(?=[ \t])")
_PLAIN_ENCODINGS = ("7bit", "8bit", "binary")


class PartHead(NamedTuple):
    """The headers of one part."""

    name: str
    content_type: str
    declared_size: int | None
    is_file: bool  # whether it has a file name


class Part:
    """One part: its headers, and the number of its bytes so far."""

    __slots__ = ("content_type", "declared_size", "is_file", "name", "size")

    def __init__(self, head: PartHead) -> None:
        self.name, self.content_type, self.declared_size, self.is_file = head
        self.size = 0


class _State(Enum):
    START = auto()
    HEADERS = auto()
    BODY = auto()
    END = auto()


class FormDataReader:
    """Parses the body chunk by chunk; yields a Part when one begins, its bytes, and None when it ends."""

    def __init__(self, boundary: str) -> None:
        self._delimiter = b"\r\n--" + boundary.encode("ascii")
        self._buffer = b""
        self._state = _State.START
        self._part: Part | None = None

    def feed(self, chunk: bytes) -> Iterator[Part | bytes | None]:
        self._buffer = self._buffer + chunk if self._buffer else chunk
        while True:
            match self._state:
                case _State.START:
                    if not self._read_first_boundary():
                        return
                case _State.HEADERS:
                    part = self._read_headers()
                    if part is None:
                        return
                    yield part
                case _State.BODY:
                    found = yield from self._read_body()
                    if not found:
                        return
                case _State.END:
                    self._check_epilogue()
                    return

    def finish(self) -> None:
        """End the body; without its last boundary it was truncated."""
        if self._state is not _State.END or not _EPILOGUE.fullmatch(self._buffer):
            raise MalformedMultipart("The multipart body ends before its last boundary: it was truncated.")

    def _check_epilogue(self) -> None:
        """Reject an epilogue that is long, on the last boundary's line, or that another parser would read as parts."""
        if len(self._buffer) > MAX_AROUND:
            raise MalformedMultipart(f"More than {MAX_AROUND} bytes follow the last boundary of the multipart body.")
        if not _EPILOGUE.fullmatch(self._buffer.removesuffix(b"\r")):
            raise MalformedMultipart("Bytes follow the last boundary of the multipart body on its line.")
        if self._delimiter[2:] in self._buffer:
            raise MalformedMultipart("A boundary follows the last boundary of the multipart body.")

    def _advance(self, count: int) -> None:
        self._buffer = self._buffer[count:]

    def _read_first_boundary(self) -> bool:
        """Skip the preamble and the first boundary, which is at the start of the body or of a line."""
        opening = self._delimiter[2:]
        if self._buffer.startswith(opening):
            return self._read_boundary_end(len(opening))
        start = self._buffer.find(self._delimiter, 0, MAX_AROUND + len(self._delimiter))
        if start >= 0:
            if opening in self._buffer[:start]:  # a parser that accepts other line breaks would begin there
                raise MalformedMultipart("The multipart body has its boundary in the midst of the preamble.")
            return self._read_boundary_end(start + len(self._delimiter))
        if len(self._buffer) >= MAX_AROUND + len(self._delimiter):
            raise MalformedMultipart(f"The first {MAX_AROUND} bytes of the multipart body hold no boundary.")
        return False

    def _read_boundary_end(self, end: int) -> bool:
        """Skip the boundary that ends at `end`; its line break stays: the search for the headers starts there."""
        if self._buffer.startswith(b"--", end):
            self._state = _State.END
            self._advance(end + 2)
            return True
        padding = _PADDING.match(self._buffer, end, end + MAX_PADDING)
        after = padding.end() if padding else end
        tail = self._buffer[after : after + 2]
        if tail == b"\r\n":
            self._state = _State.HEADERS
            self._advance(after)
            return True
        if tail not in (b"", b"\r") and not (tail == b"-" and after == end):
            raise MalformedMultipart("A boundary of the multipart body is followed by other bytes on its line.")
        return False

    def _read_headers(self) -> Part | None:
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEADER_BYTES + 4)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise MalformedMultipart(f"The headers of a part are longer than {MAX_HEADER_BYTES} bytes.")
            return None
        block = self._buffer[2:end] if end else b""
        self._advance(end + 4)
        self._part = Part(read_part_headers(block))
        self._state = _State.BODY
        return self._part

    def _read_body(self) -> Generator[bytes | None, None, bool]:
        """Yield the part's bytes up to its boundary; return whether the whole boundary was found."""
        assert self._part is not None
        end = self._buffer.find(self._delimiter)
        payload = self._buffer[: end if end >= 0 else self._sure_length()]
        if payload:
            self._part.size += len(payload)
            self._advance(len(payload))
            yield payload
        if end < 0 or not self._read_boundary_end(len(self._delimiter)):
            return False
        declared = self._part.declared_size
        if declared is not None and declared != self._part.size:
            raise MalformedMultipart(f"The part {self._part.name!r} is not as long as its Content-Length says.")
        yield None
        return True

    def _sure_length(self) -> int:
        """Return the number of bytes in the buffer that cannot be the beginning of a boundary."""
        index = self._buffer.rfind(b"\r", max(0, len(self._buffer) - len(self._delimiter) + 1))
        if index >= 0 and self._delimiter.startswith(self._buffer[index:]):
            return index
        return len(self._buffer)


def boundary_of(content_type: str) -> str:
    """Return the boundary in a request's Content-Type, or raise an error with the reason."""
    media_type, options = parse_options(content_type)
    if media_type != "multipart/form-data":
        raise UnsupportedMediaType("The body must be multipart/form-data.")
    boundary = options.get("boundary") if options is not None else None
    if boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise MalformedMultipart(_BOUNDARY_WANTED)
    return boundary


@lru_cache(maxsize=256)  # a client sends the same headers again and again
def read_part_headers(block: bytes) -> PartHead:
    """Parse the headers of one part."""
    headers = _fields(block)
    kind, options = parse_options(headers.get("content-disposition", ""))
    if kind != "form-data" or options is None or "name" not in options or "name*" in options:
        raise MalformedMultipart("A part needs `Content-Disposition: form-data` with a name.")
    encoding = headers.get("content-transfer-encoding", "binary").strip().lower()
    if encoding not in _PLAIN_ENCODINGS:
        raise MalformedMultipart("A part is encoded; parts are sent as they are (binary).")
    length = headers.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) < 12):
        raise MalformedMultipart("A part has a Content-Length that is no number.")
    return PartHead(
        options["name"],
        headers.get("content-type", ""),
        int(length) if length else None,
        is_file="filename" in options or "filename*" in options,
    )


@lru_cache(maxsize=256)  # uploads have few different values
def parse_options(value: str) -> tuple[str, Mapping[str, str] | None]:
    """Parse `kind; name=value; ...`; the options are None if they are malformed or one is repeated."""
    kind, _, _ = value.partition(";")
    options: dict[str, str] = {}
    position, end = len(kind), len(value.rstrip())
    while position < end:
        if nothing := _NO_OPTION.match(value, position, end):
            position = nothing.end()
            continue
        match = _OPTION.match(value, position)
        if match is None or match.group(1).lower() in options:
            return kind.strip().lower(), None
        quoted, bare = match.group(2), match.group(3)
        options[match.group(1).lower()] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
    return kind.strip().lower(), options


def _fields(block: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    lines = _FOLD.sub(b"", block).split(b"\r\n") if block else []
    if len(lines) > MAX_HEADERS:
        raise MalformedMultipart(f"A part has more than {MAX_HEADERS} headers.")
    for line in lines:
        try:
            name, colon, value = line.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise MalformedMultipart("A part's header is not UTF-8.") from None
        if not colon or not _FIELD_NAME.fullmatch(name) or _CONTROL.search(value) or name.lower() in headers:
            raise MalformedMultipart("A part has a header that is malformed or given twice.")
        headers[name.lower()] = value.strip(" \t")
    return headers
