"""The columns of one finished request in ClickHouse, encoded as a row of RowBinary.

Security: the strings come from hostile messages. Lone surrogates and NUL are replaced; they never cause an error.
"""

import math
from datetime import date, datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.history.clickhouse.binary import (
    encode_day,
    encode_int64s,
    encode_text,
    encode_texts,
    encode_uint32,
    encode_uint64,
)
from mailwarden.history.clickhouse.schema import NO_CAMPAIGN
from mailwarden.history.postgresql.statistics import CLASSES_PER_DOUBLING, LAST_CLASS
from mailwarden.history.store import HistoryRow
from mailwarden.journal.records import plain
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.search.terms import plain_address, term_hashes
from mailwarden.search.words import SEPARATOR, lexemes_of

MAX_TEXT = 2_000  # of a search column; the record holds the whole text
HOUR = 3_600
_LAST_VERSION = 1 << 63


class EncodedRow(Struct, frozen=True):
    """A request and its row."""

    request: FinishedRequest
    day: date
    data: bytes

    @property
    def key(self) -> tuple[UUID, UUID]:
        return self.request.ggrid, self.request.tenant


def encode_row(row: HistoryRow) -> EncodedRow | None:
    """Return the row of a request, or None if its id is not a ggrid.

    The record is plain: the server compresses many of them together.
    """
    request = row.request
    moment = moment_of(request.ggrid)
    if moment is None:
        return None
    summary, envelope = request.summary, request.envelope
    at = int(moment.timestamp())
    columns = (
        encode_day(moment.date()),
        encode_uint32(at // HOUR),
        encode_uint32(at),
        request.tenant.bytes,
        request.ggrid.bytes,
        encode_uint64(version_of(request.completed)),
        encode_text(request.judgement.verdict),
        encode_text(request.ruling.decision),
        bytes((duration_class(request.created, request.completed),)),
        _texts(request.tags),
        encode_text(envelope.sender[:MAX_TEXT]),
        encode_text(summary.from_address[:MAX_TEXT]),
        _texts(envelope.recipients),
        _texts(summary.url_hosts),
        encode_text(summary.subject[:MAX_TEXT]),
        (request.campaign.own if request.campaign else NO_CAMPAIGN).bytes,
        (request.campaign.shared if request.campaign else NO_CAMPAIGN).bytes,
        encode_text(_packed(envelope.remote_address)),
        encode_int64s(term_hashes(request)),
        encode_text(f"{SEPARATOR}{SEPARATOR.join(lexemes_of(request))}{SEPARATOR}"),
        encode_text(plain(row.record)),
    )
    return EncodedRow(request, moment.date(), b"".join(columns))


def version_of(completed: datetime) -> int:
    """Return the version of a row: of two rows of one key, the one that was completed first stays."""
    return _LAST_VERSION - int(completed.timestamp() * 1_000_000)


def duration_class(created: datetime, completed: datetime) -> int:
    """Return the class of a duration, as the rollups count it."""
    milliseconds = max((completed - created).total_seconds() * 1_000, 1.0)
    return min(LAST_CLASS, math.floor(math.log2(milliseconds) * CLASSES_PER_DOUBLING))


def _texts(texts: tuple[str, ...]) -> bytes:
    return encode_texts([text[:MAX_TEXT] for text in texts])


def _packed(address: str | None) -> bytes:
    """Return the bytes of the address, or none if it is missing or invalid."""
    try:
        return b"" if address is None else plain_address(address).packed
    except ValueError:
        return b""
