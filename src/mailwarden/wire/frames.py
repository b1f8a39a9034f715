"""The frames between abby and guard: many messages at once over one connection, each in pieces of a limited size.

A frame is a length, a kind, the number of a message and a payload. abby begins with HELLO, and guard answers with the
version that both speak. The layout of a frame and of HELLO stays the same in every version.

Security: decodes bytes of the other process. A frame that breaks a rule raises FrameError, and the connection ends.
"""

import struct
from enum import IntEnum
from typing import Annotated, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from mailwarden.wire.guard import GroupRecord
from mailwarden.wire.scanning import BorderMtaData

ALPN = "mailwarden-frames"  # RFC 7301; a guard without frames selects http/1.1
VERSIONS = (1,)

MAX_PAYLOAD = 65_536
WINDOW = 262_144  # bytes of one message that abby may send before guard asks for more
MAX_STREAMS = 1_024  # messages of one connection at once
LAST_STREAM = 2**31 - 1
MAX_SCAN_PARAMETERS = 9 * 1024 * 1024  # the parameters of an upload, and 1,000 tenants with 50 weights each
NO_RETRY_AFTER = 65_535

_HEADER: Final = struct.Struct(">IBI")
_ANSWER: Final = struct.Struct(">HH")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
HEADER_SIZE: Final = _HEADER.size


class Kind(IntEnum):
    """The kinds of frames; a frame of the connection itself has the number 0."""

    HELLO = 1  # both: the versions of abby, the version that guard selected
    OPEN = 2  # abby: the head of a message, and its first bytes
    DATA = 3  # abby: further bytes
    CREDIT = 4  # guard: how many more bytes abby may send
    CANCEL = 5  # abby: no caller waits for the result
    PART = 6  # guard: a piece of the LINE or ANSWER that follows
    LINE = 7  # guard: one step of a watched analysis
    ANSWER = 8  # guard: the result or the error; the last frame of a message
    PING = 9
    PONG = 10
    GOODBYE = 11  # both: why the connection closes


Frame = tuple[int, int, bytes]  # kind, number of the message, payload
_KINDS = frozenset(map(int, Kind))
_OF_CONNECTION = frozenset({int(Kind.HELLO), int(Kind.PING), int(Kind.PONG), int(Kind.GOODBYE)})


class FrameError(Exception):
    """The other process broke a rule of the protocol; `kind` is a short name for the metric."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Hello(Struct, frozen=True, rename="camel"):
    """The first frame of abby."""

    versions: Annotated[tuple[int, ...], Meta(min_length=1, max_length=32)]
    program: Annotated[str, Meta(max_length=100)] = ""


class HelloAnswer(Struct, frozen=True, rename="camel"):
    """The first frame of guard. `instance` is another one after each start, and in each guard behind one address."""

    version: int
    instance: Annotated[str, Meta(min_length=1, max_length=100)]
    window: Annotated[int, Meta(ge=MAX_PAYLOAD, le=16_777_216)] = WINDOW
    max_streams: Annotated[int, Meta(ge=1, le=65_536)] = MAX_STREAMS


Whole = Annotated[int, Meta(ge=0, le=2**53)]


class ScanHead(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The head of a message: the values that an HTTPS request has in its headers."""

    ggrid: UUID
    deadline_ms: Whole
    parameters_size: Whole
    message_size: Whole
    request_id: Annotated[str, Meta(max_length=64)] = ""
    traceparent: Annotated[str, Meta(max_length=200)] = ""
    watched: bool = False
    stored: bool = True


class ScanParameters(Struct, frozen=True, rename="camel"):
    """The envelope and the recipients by tenant; the bytes of a message begin with it."""

    border_mta_data: BorderMtaData
    groups: Annotated[tuple[GroupRecord, ...], Meta(min_length=1)]


T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_hello = msgspec.json.Decoder(Hello)
_hello_answer = msgspec.json.Decoder(HelloAnswer)
_scan_head = msgspec.json.Decoder(ScanHead)


def encode(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"{len(payload)} bytes do not fit into a frame")
    return _HEADER.pack(len(payload), kind, stream) + payload


def encode_record(kind: Kind, record: Struct) -> bytes:
    """Return a frame of the connection itself."""
    return encode(kind, 0, _encode(record))


def encode_open(stream: int, head: ScanHead, data: bytes) -> bytes | None:
    """Return the frame that opens a message and has all its bytes, or None if they do not fit."""
    packed = _encode(head)
    size = _U16.size + len(packed) + len(data)
    if size > MAX_PAYLOAD:
        return None
    return b"".join((_HEADER.pack(size, Kind.OPEN, stream), _U16.pack(len(packed)), packed, data))


def encode_credit(stream: int, size: int) -> bytes:
    return encode(Kind.CREDIT, stream, _U32.pack(size))


def encode_answer(stream: int, status: int, retry_after: int | None, body: bytes) -> list[bytes]:
    """Return the frames of an answer: one, or several for a long body."""
    pause = NO_RETRY_AFTER if retry_after is None else min(max(retry_after, 0), NO_RETRY_AFTER - 1)
    return _in_parts(Kind.ANSWER, stream, _ANSWER.pack(status, pause) + body)


def encode_line(stream: int, line: bytes) -> list[bytes]:
    return _in_parts(Kind.LINE, stream, line)


def _in_parts(kind: Kind, stream: int, payload: bytes) -> list[bytes]:
    if len(payload) <= MAX_PAYLOAD:
        return [encode(kind, stream, payload)]
    pieces = [payload[start : start + MAX_PAYLOAD] for start in range(0, len(payload), MAX_PAYLOAD)]
    return [*(encode(Kind.PART, stream, piece) for piece in pieces[:-1]), encode(kind, stream, pieces[-1])]


def decode_hello(payload: bytes) -> Hello:
    return _decoded(_hello, payload)


def decode_hello_answer(payload: bytes) -> HelloAnswer:
    return _decoded(_hello_answer, payload)


def decode_open(payload: bytes) -> tuple[ScanHead, bytes]:
    """Return the head of a message and its first bytes."""
    if len(payload) < _U16.size:
        raise FrameError("bad_payload")
    end = _U16.size + _U16.unpack_from(payload)[0]
    if end > len(payload):
        raise FrameError("bad_payload")
    return _decoded(_scan_head, payload[_U16.size : end]), payload[end:]


def decode_credit(payload: bytes) -> int:
    if len(payload) != _U32.size:
        raise FrameError("bad_payload")
    (size,) = _U32.unpack(payload)
    return int(size)


def decode_answer(payload: bytes) -> tuple[int, int | None, bytes]:
    """Return status, seconds of Retry-After and body."""
    if len(payload) < _ANSWER.size:
        raise FrameError("bad_payload")
    status, pause = _ANSWER.unpack_from(payload)
    return status, None if pause == NO_RETRY_AFTER else pause, payload[_ANSWER.size :]


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise FrameError("bad_payload") from None


def select_version(versions: tuple[int, ...]) -> int | None:
    """Return the newest version that both processes speak, or None."""
    return max(set(versions) & set(VERSIONS), default=None)


class FrameDecoder:
    """Cuts a stream of bytes into frames; it keeps less than one frame."""

    __slots__ = ("_needed", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = 0  # bytes until the frame that has begun is complete: a slow sender costs no copies

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now; raise FrameError at the first header that is not allowed."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames: list[Frame] = []
        position, available = 0, len(data)
        while available - position >= HEADER_SIZE:
            size, kind, stream = _HEADER.unpack_from(data, position)
            if size > MAX_PAYLOAD:
                raise FrameError("too_large")
            if kind not in _KINDS:
                raise FrameError("unknown_kind")
            if (stream == 0) is not (kind in _OF_CONNECTION) or stream > LAST_STREAM:
                raise FrameError("bad_stream")
            start = position + HEADER_SIZE
            if available - start < size:
                self._needed = HEADER_SIZE + size
                break
            position = start + size
            frames.append((kind, stream, data[start:position]))
        else:
            self._needed = HEADER_SIZE
        if position < available:
            self._rest += data[position:]
        return frames
