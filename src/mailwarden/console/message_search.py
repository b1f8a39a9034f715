"""The search of messages as the URL states it: its text, time range and order, the page, and the open message. Pure."""

from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from msgspec import Struct

from mailwarden.console.language import N_
from mailwarden.errors import InvalidQuery
from mailwarden.history.store import Cursor, Order

ADDRESS = "/console/messages"
MAX_NEWER = 20  # previous pages that a URL remembers
# Time ranges by their value in the URL; the first is the default.
RANGES: Mapping[str, tuple[str, timedelta | None]] = {
    "7d": (N_("the last 7 days"), timedelta(days=7)),
    "1h": (N_("the last hour"), timedelta(hours=1)),
    "24h": (N_("the last 24 hours"), timedelta(hours=24)),
    "30d": (N_("the last 30 days"), timedelta(days=30)),
    "all": (N_("all history"), None),
    "between": (N_("between two times"), None),
}
# The orders by their value in the URL; the first is the default.
ORDERS: Mapping[Order, str] = {
    Order.NEWEST: N_("newest first"),
    Order.OLDEST: N_("oldest first"),
    Order.POINTS: N_("most points first"),
}


class Search(Struct, frozen=True):
    """A search as the URL states it."""

    text: str = ""
    range: str = "7d"
    order: Order = Order.NEWEST
    since: str = ""
    until: str = ""
    before: Cursor | None = None  # where the page begins
    newer: tuple[str, ...] = ()  # cursors of the previous pages, the first page first
    seen: UUID | None = None  # the newest message when the user started to follow
    tail: bool = False
    open: Cursor | None = None  # the message beside the list; it belongs to the window, not to the search

    def address(self, path: str = ADDRESS, /, **changes: object) -> str:
        """Return the URL of this search with changes; empty values are left out."""
        given = {
            "q": self.text,
            "range": "" if self.range == "7d" else self.range,
            "order": "" if self.order is Order.NEWEST else self.order,
            "since": self.since if self.range == "between" else "",
            "until": self.until if self.range == "between" else "",
            "tail": "1" if self.tail else "",
            "seen": self.seen or "",
            "before": self.before or "",
            "newer": ".".join(self.newer) if self.before else "",
            **changes,
        }
        asked = urlencode({name: str(value) for name, value in given.items() if value})
        return f"{path}?{asked}" if asked else path

    def first_page(self, **changes: object) -> str:
        """Return the URL of the first page of this search with changes."""
        return self.address(before="", newer="", tail="", seen="", **changes)

    def narrowed(self, term: str) -> str:
        """Return the URL of the first page of this search with one more term."""
        return self.first_page(q=f"{self.text} {term}".strip())

    def to_next(self, place: Cursor) -> str:
        """Return the URL of the page that begins at `place`, with the way back to this page."""
        here = str(self.before) if self.before else "first"
        return self.address(before=place, newer=".".join((*self.newer, here)[-MAX_NEWER:]))

    def to_previous(self) -> str:
        """Return the URL of the previous page, or of the first page if the way back is lost."""
        last = self.newer[-1] if self.newer else "first"
        return self.address(before="" if last == "first" else last, newer=".".join(self.newer[:-1]))


def read_search(query: Mapping[str, str]) -> Search:
    """Return the search in the URL, or raise InvalidQuery."""
    wanted = query.get("range", "") or "7d"
    if wanted not in RANGES:
        raise InvalidQuery(f"There is no time range of that name. There are {', '.join(RANGES)}.")
    order = query.get("order", "") or Order.NEWEST
    if order not in list(Order):
        raise InvalidQuery(f"There is no order of that name. There are {', '.join(Order)}.")
    tail = query.get("tail") == "1"
    return Search(
        text=query.get("q", ""),
        range=wanted,
        order=Order.NEWEST if tail else Order(order),
        since=query.get("since", ""),
        until=query.get("until", ""),
        before=None if tail else _place(query.get("before", "")),
        newer=tuple(_checked(each) for each in query.get("newer", "").split(".")[-MAX_NEWER:] if each),
        seen=seen.ggrid if tail and (seen := _place(query.get("seen", ""))) else None,
        tail=tail,
        open=_place(query.get("open", "")),
    )


def read_back(text: str) -> str:
    """Return the URL of the list that a form or a link returns to; empty if it does not name one."""
    path, _, query = text.partition("?")
    if path != ADDRESS:
        return ""
    try:
        return read_search(dict(parse_qsl(query))).address()
    except (InvalidQuery, ValueError):
        return ADDRESS


def _checked(text: str) -> str:
    return text if text == "first" else str(_place(text))


def _place(text: str) -> Cursor | None:
    try:
        return Cursor.parse(text) if text else None
    except ValueError:
        raise InvalidQuery("The position in the list is not a ggrid.") from None
