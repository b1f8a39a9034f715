"""The id of a guard request: a UUID version 7, which contains the time and therefore the day of its history."""

import os
import time
from datetime import UTC, date, datetime
from uuid import UUID

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62


def new_ggrid() -> UUID:
    """Make an id from the clock's milliseconds and 74 random bits (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high, low = random >> 68, random & ((1 << 62) - 1)
    return UUID(int=(milliseconds << 80) | _VERSION_7 | (high << 64) | _VARIANT | low)


def first_ggrid(moment: datetime) -> UUID:
    """Return the lowest id that can be made at `moment`; all later ids are higher."""
    milliseconds = min(max(int(moment.timestamp() * 1000), 0), (1 << 48) - 1)
    return UUID(int=(milliseconds << 80) | _VERSION_7 | _VARIANT)


def moment_of(ggrid: UUID) -> datetime | None:
    """Return the time of the id, or None if it is not a ggrid."""
    if ggrid.version != 7:
        return None
    try:
        return datetime.fromtimestamp((ggrid.int >> 80) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def day_of(ggrid: UUID) -> date | None:
    """Return the UTC day of the id, or None if it is not a ggrid."""
    moment = moment_of(ggrid)
    return moment.date() if moment else None
