"""The id of a guard request: a UUID version 7, so that the id itself tells the day its history is kept under."""

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
    """Return the lowest id that a clock saying `moment` can make: what was made since is not below it."""
    milliseconds = min(max(int(moment.timestamp() * 1000), 0), (1 << 48) - 1)
    return UUID(int=(milliseconds << 80) | _VERSION_7 | _VARIANT)


def moment_of(ggrid: UUID) -> datetime | None:
    """Return when the id was made, or None where it is not one of ours."""
    if ggrid.version != 7:
        return None
    try:
        return datetime.fromtimestamp((ggrid.int >> 80) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def day_of(ggrid: UUID) -> date | None:
    """Return the UTC day the id was made on, or None where it is not one of ours."""
    moment = moment_of(ggrid)
    return moment.date() if moment else None
