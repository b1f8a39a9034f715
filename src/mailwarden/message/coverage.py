"""Coverage of one message as data: the content that was not inspected, its place and the reason.

Every reader that can stop early records a `Missed` here instead of stopping in silence. The worker turns the records
into findings, and the rules in `policy/rules/structure.yml` keep the message from being `clean`.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from mailwarden.message.limits import KEPT, LIMITS, Limits
from mailwarden.model.place import Place

Item = TypeVar("Item")
Text = TypeVar("Text", str, bytes)


class MissedReason(StrEnum):
    LIMIT = "limit"  # one of our own limits stopped the inspection
    ENCRYPTED = "encrypted"  # the password is not in the message
    UNSUPPORTED = "unsupported"  # a format or method that we cannot read, but a mail client might
    DAMAGED = "damaged"  # content that ends early or contradicts itself


class Missed(Struct, frozen=True):
    """Content that was not inspected; `limit` is the field of `Limits` that stopped a reader."""

    place: Place
    reason: MissedReason
    limit: str = ""
    detail: str = ""  # the body of a sentence for people, such as "the archive holds more than 10,000 files"


class Coverage:
    """Records the content of one message that was not inspected, and applies the limits."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._missed: dict[tuple[MissedReason, str, Place], Missed] = {}

    @property
    def missed(self) -> tuple[Missed, ...]:
        return tuple(self._missed.values())

    @property
    def complete(self) -> bool:
        return not self._missed

    def beyond(self, limit: str, place: Place, detail: str = "") -> None:
        """Record that the limit named `limit` stopped a reader."""
        value: int = getattr(self.limits, limit)  # a name that does not exist must fail in the first test
        self._add(Missed(place, MissedReason.LIMIT, limit, detail or f"{limit.replace('_', ' ')} is over {value:,}"))

    def encrypted(self, place: Place, detail: str = "") -> None:
        self._add(Missed(place, MissedReason.ENCRYPTED, "", detail or "encrypted, and the password is not given"))

    def unsupported(self, place: Place, detail: str) -> None:
        self._add(Missed(place, MissedReason.UNSUPPORTED, "", detail))

    def damaged(self, place: Place, detail: str) -> None:
        self._add(Missed(place, MissedReason.DAMAGED, "", detail))

    def cut(self, content: Text, limit: str, place: Place) -> Text:
        """Return as much of a text as the limit allows, and record the rest as missed."""
        most: int = getattr(self.limits, limit)
        if len(content) <= most:
            return content
        self.beyond(limit, place)
        return content[:most]

    def first(self, items: Iterable[Item], limit: str, place: Place) -> Iterator[Item]:
        """Yield as many items as the limit allows, and record the others as missed."""
        most: int = getattr(self.limits, limit)
        for count, item in enumerate(items):
            if count >= most:
                self.beyond(limit, place)
                return
            yield item

    def _add(self, missed: Missed) -> None:
        """Keep the first of each reason, limit and place; one of a kind decides, so the list itself may end."""
        key = (missed.reason, missed.limit, missed.place)
        kinds = {(reason, limit) for reason, limit, _ in self._missed}
        if key not in self._missed and (len(self._missed) < KEPT.missed or key[:2] not in kinds):
            self._missed[key] = missed
