"""The bytes of a segment: a header with versions, then records with a length, a number, a time and a checksum.

A reader finds the next record behind damaged bytes by its mark; where a payload holds the same bytes by chance, the
checksum refuses them.
"""

import struct
import zlib

from msgspec import Struct

from mailwarden.errors import ConfigurationError

FORMAT = 1  # of segments; raise it when their form changes, and read the earlier one
MAX_PAYLOAD = 16 * 1024 * 1024
_MAGIC = b"MWJRNL\r\n"
_MARK = b"\xffMW\xff"
_HEAD = struct.Struct(">8sHHQ")  # magic, format, version of the payloads, number of the first record
_RECORD = struct.Struct(">4sIQQ")  # mark, length of the payload, number, milliseconds since 1970
_CHECKSUM = struct.Struct(">I")
HEAD_SIZE = _HEAD.size + _CHECKSUM.size
OVERHEAD = _RECORD.size + _CHECKSUM.size


class Head(Struct, frozen=True):
    """The header of a segment."""

    version: int  # of the payloads
    first: int
    format: int = FORMAT


class Record(Struct, frozen=True):
    """One payload with its number; numbers rise by one and are never used again."""

    number: int
    milliseconds: int
    payload: bytes


class Parsed(Struct, frozen=True):
    """The records in some bytes, the offset behind the last of them, and how many bytes between them are damaged."""

    records: tuple[Record, ...]
    end: int
    damaged: int


def encode_head(head: Head) -> bytes:
    data = _HEAD.pack(_MAGIC, head.format, head.version, head.first)
    return data + _CHECKSUM.pack(zlib.crc32(data))


def decode_head(data: bytes) -> Head | None:
    """Return the header, or None if the bytes are none."""
    if len(data) < HEAD_SIZE:
        return None
    magic, format_, version, first = _HEAD.unpack_from(data)
    if magic != _MAGIC or _CHECKSUM.unpack_from(data, _HEAD.size) != (zlib.crc32(data[: _HEAD.size]),):
        return None
    return Head(version, first, format_)


def require_readable(head: Head, version: int, place: str) -> None:
    """Raise if a newer Mailwarden wrote the segment: its records may mean something else."""
    if head.format > FORMAT or head.version > version:
        raise ConfigurationError(
            f"journal.folder: {place} is from a newer Mailwarden (format {head.format}, records {head.version}; this "
            f"one reads format {FORMAT}, records {version}). Start the newer version until its journal is empty "
            "(mailwarden_history_waiting is 0), or move the file away: its rows are then missing in history."
        )


def encode_record(record: Record) -> bytes:
    head = _RECORD.pack(_MARK, len(record.payload), record.number, record.milliseconds)
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(record.payload, zlib.crc32(head))), record.payload))


def parse(data: bytes, start: int = 0) -> Parsed:
    """Return the valid records from `start` on; damaged bytes are skipped up to the next valid record."""
    records: list[Record] = []
    end, damaged, place = start, 0, start
    while (place := data.find(_MARK, place)) >= 0:
        record = _record_at(data, place)
        if record is None:
            place += 1
            continue
        damaged += place - end
        records.append(record)
        place = end = place + OVERHEAD + len(record.payload)
    return Parsed(tuple(records), end, damaged)


def damaged_at(data: bytes, start: int) -> int:
    """Return how many records from `start` on have all their bytes, by their length, and a wrong checksum.

    A crash leaves a shorter one: the file ends where the write did.
    """
    count, place = 0, start
    while data[place : place + len(_MARK)] == _MARK and place + OVERHEAD <= len(data):
        place += OVERHEAD + int(_RECORD.unpack_from(data, place)[1])
        if place > len(data):
            break
        count += 1
    return count


def _record_at(data: bytes, place: int) -> Record | None:
    body = place + OVERHEAD
    if body > len(data):
        return None
    _, length, number, milliseconds = _RECORD.unpack_from(data, place)
    if length > MAX_PAYLOAD or body + length > len(data):
        return None
    payload = data[body : body + length]
    checksum = zlib.crc32(payload, zlib.crc32(data[place : place + _RECORD.size]))
    if _CHECKSUM.unpack_from(data, place + _RECORD.size) != (checksum,):
        return None
    return Record(number, milliseconds, payload)
