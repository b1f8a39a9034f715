"""Indicators of a feed, the limits of a feed, and the count of what a feed contains besides them."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from mailwarden.errors import FeedRejected

UNKNOWN_CONFIDENCE = 50  # of a feed that states none
MAX_REFERENCE = 200
MAX_TAGS = 20
MAX_TAG = 100
MAX_REASONS = 50
OTHER_REASONS = "other reasons"


class IndicatorKind(StrEnum):
    """The kind of value of an indicator; each kind belongs into one or two lists."""

    DOMAIN = "domain"
    URL = "url"
    IP = "ip"
    EMAIL = "email"
    HASH = "hash"
    ANY = "any"  # a plain value: the target list decides


class Indicator(Struct, frozen=True):
    """One value of a feed as the feed spells it."""

    kind: IndicatorKind
    value: str
    confidence: int = UNKNOWN_CONFIDENCE  # 0 to 100
    valid_until: datetime | None = None
    tags: tuple[str, ...] = ()
    reference: str = ""  # the id of the object or event, or the line


class FeedLimits(Struct, frozen=True):
    """Above one of these, the whole update is rejected."""

    max_bytes: int = 64 * 1024 * 1024
    max_entries: int = 1_000_000
    max_line: int = 65_536


class Skipped:
    """Counts by reason what a feed contains and a list does not take; a feed can name any number of reasons."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reason: str, number: int = 1) -> None:
        known = reason in self._counts or len(self._counts) < MAX_REASONS
        self._counts[reason if known else OTHER_REASONS] += number

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts.most_common())


def reject(what: str, where: str = "") -> FeedRejected:
    """Return the error that rejects a whole update."""
    return FeedRejected(f"{where}: {what}" if where else what)


def cut(text: str, size: int = MAX_REFERENCE) -> str:
    """Return a text of a feed as it is stored: short, printable, valid UTF-8."""
    printable = "".join(each if each.isprintable() else " " for each in text[:size])
    return printable.encode("utf-8", "replace").decode()


def confidence_of(value: object, where: str) -> int:
    """Return a confidence from 0 to 100, or reject the update."""
    try:
        number = int(str(value).strip()) if not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 100:
        raise reject(f"the confidence `{cut(str(value), 40)}` is not a whole number from 0 to 100", where)
    return number
