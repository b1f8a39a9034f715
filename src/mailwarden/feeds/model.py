"""A feed with its settings, an update of a feed with its preview, and the reasons for which an update waits."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Meta, Struct

from mailwarden.errors import SchemaViolation
from mailwarden.feeds.indicators import FeedLimits, IndicatorKind
from mailwarden.feeds.text_formats import FieldMapping
from mailwarden.lists.catalogue import MatchOn, lists_on
from mailwarden.lists.store import ListScope

MAX_NAME = 60
MAX_BYTES = 256 * 1024 * 1024  # of any feed
MAX_JSON = 64 * 1024 * 1024  # bytes of MISP, STIX and TAXII
SECRET = b"mailwarden feeds credential 1"  # the purpose of the seal
AUTHOR = "feed:"  # before the name of a feed, where a list names who added an entry
# The kinds of indicators for a list that is matched on a value.
_INDICATORS: Mapping[MatchOn, frozenset[IndicatorKind]] = {
    MatchOn.SENDER: frozenset({IndicatorKind.EMAIL, IndicatorKind.DOMAIN, IndicatorKind.ANY}),
    MatchOn.URL: frozenset({IndicatorKind.URL, IndicatorKind.DOMAIN, IndicatorKind.ANY}),
    MatchOn.CLIENT_IP: frozenset({IndicatorKind.IP, IndicatorKind.ANY}),
    MatchOn.FILE: frozenset({IndicatorKind.HASH, IndicatorKind.ANY}),
}
# The lists that a feed may fill, with the kinds of indicators that belong there.
TARGETS: Mapping[str, frozenset[IndicatorKind]] = {
    each.name: kinds for value, kinds in _INDICATORS.items() for each in lists_on(value) if each.fed
}

SMALL = 20  # entries; a small feed may always change by so many


class FeedFormat(StrEnum):
    TEXT = "text"
    CSV = "csv"
    NDJSON = "ndjson"
    MISP = "misp"  # an event, a search result, or the manifest of a MISP feed
    STIX = "stix"  # a bundle
    TAXII = "taxii"  # the objects of a collection: https://host/api/collections/ID/objects/


class SightingFormat(StrEnum):
    NDJSON = "ndjson"
    MISP = "misp"


class FeedSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The settings of one feed."""

    source: str  # https://… or the absolute path of a file
    format: FeedFormat
    list_name: str
    mapping: FieldMapping = FieldMapping()
    interval: Annotated[int, Meta(ge=300, le=2_592_000)] = 3_600  # seconds between two runs
    ttl_days: Annotated[int, Meta(ge=0, le=3_650)] = 7  # that an entry stays after the feed dropped it
    min_confidence: Annotated[int, Meta(ge=0, le=100)] = 0
    good_mail_budget: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # messages of the last 30 days
    accept_unseen: bool = False  # apply entries although history does not keep all that they may match
    max_growth: Annotated[int, Meta(ge=0, le=1_000)] = 50  # per cent of the entries the feed had
    max_shrink: Annotated[int, Meta(ge=0, le=100)] = 50
    max_change: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000  # entries added, and entries dropped
    max_left_out: Annotated[int, Meta(ge=0, le=1_000_000)] = 10  # entries that hit a warning list
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES)] = 64 * 1024 * 1024
    max_entries: Annotated[int, Meta(ge=1, le=10_000_000)] = 1_000_000
    sighting_url: str = ""  # empty: hits are not reported
    sighting_format: SightingFormat = SightingFormat.NDJSON

    @property
    def limits(self) -> FeedLimits:
        """The limits that hold; a JSON document may have fewer bytes, because it takes more time to read."""
        return FeedLimits(min(self.max_bytes, MAX_JSON) if self.is_json else self.max_bytes, self.max_entries)

    @property
    def is_json(self) -> bool:
        return self.format in (FeedFormat.MISP, FeedFormat.STIX, FeedFormat.TAXII)

    @property
    def shown_source(self) -> str:
        """The source as users and the audit log see it: the query of a URL may contain a key."""
        return self.source if self.is_file else re.sub(r"[?#].*", "?…", self.source, flags=re.DOTALL)

    @property
    def reports_to_source(self) -> bool:
        """Return whether sightings go to the host and port that the feed comes from."""
        return not self.is_file and _site(self.sighting_url) == _site(self.source)

    @property
    def ttl(self) -> timedelta:
        return timedelta(days=self.ttl_days)

    @property
    def is_file(self) -> bool:
        return not self.source.startswith("https://")

    def checked(self) -> "FeedSettings":
        """Return the settings, or raise SchemaViolation with every mistake."""
        if mistakes := list(self._mistakes()):
            raise SchemaViolation(" ".join(mistakes))
        return self

    def _mistakes(self) -> Iterator[str]:
        if self.list_name not in TARGETS:
            yield f"A feed fills one of these lists: {', '.join(TARGETS)}."
        if self.is_file and not PurePosixPath(self.source).is_absolute():
            yield "The source must be an https:// URL or the absolute path of a file on abby's host."
        if not self.is_file and not _is_https(self.source):
            yield "The source is no https:// URL with a host, and without a user name."
        if self.format is FeedFormat.TAXII and self.is_file:
            yield "A TAXII collection needs an https:// URL."
        if self.sighting_url and not _is_https(self.sighting_url):
            yield "The sighting URL must be an https:// URL with a host, and without a user name."
        if self.is_json and self.max_bytes > MAX_JSON:
            yield f"MISP, STIX and TAXII are read up to {MAX_JSON:,} bytes: lower --max-bytes."
        if len(self.mapping.delimiter) != 1:
            yield "The delimiter of CSV is one character."
        if self.mapping != FieldMapping() and self.format not in (FeedFormat.CSV, FeedFormat.NDJSON):
            yield "Only CSV and NDJSON have a mapping of fields."


def _site(url: str) -> tuple[str | None, int]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or 443


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return False


class Feed(Struct, frozen=True):
    """A subscription; without a tenant it fills a global list."""

    uid: UUID
    tenant: UUID | None
    name: str
    settings: FeedSettings
    created: datetime
    created_by: str
    next_run: datetime
    etag: str = ""
    modified: str = ""
    fetched: datetime | None = None
    failure: str = ""
    failures: int = 0
    sealed: bytes | None = None

    @property
    def scope(self) -> ListScope:
        return ListScope(self.tenant)

    @property
    def author(self) -> str:
        """The name under which list entries, list changes and the audit log show this feed."""
        return AUTHOR + self.name


class UpdateState(StrEnum):
    READING = "reading"
    WAITING = "waiting"
    APPLYING = "applying"
    APPLIED = "applied"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"  # the feed changed again before a user decided


class WaitReason(StrEnum):
    """Why an update waits for approval."""

    GOOD_MAIL = "good-mail"
    INCOMPLETE = "incomplete-rehearsal"
    GROWTH = "growth"
    SHRINK = "shrink"
    EMPTY = "empty"
    LEFT_OUT = "left-out"
    LIST_FULL = "list-full"


class Wait(Struct, frozen=True):
    """One reason with its figure, and the bound that it exceeds."""

    reason: WaitReason
    found: int = 0
    bound: int = 0

    @property
    def sentence(self) -> str:
        return SENTENCES[self.reason].format(found=f"{self.found:,}", bound=f"{self.bound:,}")


SENTENCES: Mapping[WaitReason, str] = {
    WaitReason.GOOD_MAIL: "{found} good messages of the last 30 days would have matched; {bound} are allowed.",
    WaitReason.INCOMPLETE: "The rehearsal is incomplete: {found} of {bound} new entries were rehearsed to the end.",
    WaitReason.GROWTH: "{found} entries are new; the bound is {bound}.",
    WaitReason.SHRINK: "{found} entries are gone; the bound is {bound}.",
    WaitReason.EMPTY: "The feed is empty; it had {bound} entries.",
    WaitReason.LEFT_OUT: "{found} entries are on a warning list; the bound is {bound}.",
    WaitReason.LIST_FULL: "The list is full: {found} entries are left to add, and it holds at most {bound}.",
}


class WarningList(StrEnum):
    """Values that no feed may block without a person."""

    POPULAR = "popular-domain"
    OWN = "own-domain"
    CORRESPONDENT = "correspondent"
    FREE_MAIL = "free-mail"
    SHARED_HOST = "shared-host"
    PRIVATE_ADDRESS = "private-address"


WARNING_TEXTS: Mapping[WarningList, str] = {
    WarningList.POPULAR: "a popular domain",
    WarningList.OWN: "an own domain",
    WarningList.CORRESPONDENT: "a correspondent",
    WarningList.FREE_MAIL: "a free-mail domain",
    WarningList.SHARED_HOST: "a host that many owners share",
    WarningList.PRIVATE_ADDRESS: "a private or reserved address",
}


class LeftOut(Struct, frozen=True):
    """An entry that is not added, with the warning list that it hits."""

    entry: str
    warning: WarningList


class HitMessage(Struct, frozen=True):
    """A good message that an entry would have matched."""

    ggrid: UUID
    tenant: UUID
    created: datetime
    sender: str
    subject: str
    entry: str


class Preview(Struct, frozen=True):
    """The rehearsal of one update: its effect, and the reasons for which it waits."""

    entries: int = 0  # of the update, without those left out
    known: int = 0  # the feed had before
    added: int = 0
    dropped: int = 0
    changed: int = 0  # with another expiry
    skipped: Mapping[str, int] = {}  # by reason
    left_out: Mapping[WarningList, int] = {}
    left_out_entries: tuple[LeftOut, ...] = ()  # the first of them
    good_mail: int = 0
    rehearsed: int = 0  # new entries that were rehearsed to the end
    rehearsed_at: datetime | None = None
    messages: tuple[HitMessage, ...] = ()  # the first that were found
    notes: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()

    @property
    def left_out_total(self) -> int:
        return sum(self.left_out.values())


class Update(Struct, frozen=True):
    uid: UUID
    feed: UUID
    fetched: datetime
    state: UpdateState
    preview: Preview
    decided: datetime | None = None
    decided_by: str = ""


class Difference(Struct, frozen=True):
    """The entries of an update compared with those that the feed had."""

    entries: int
    known: int
    added: int
    dropped: int
    changed: int


def waits_of(settings: FeedSettings, difference: Difference, preview: Preview) -> Iterator[Wait]:
    """Yield every reason for which an update waits; none: it is applied."""
    if preview.good_mail > settings.good_mail_budget:
        yield Wait(WaitReason.GOOD_MAIL, preview.good_mail, settings.good_mail_budget)
    if preview.rehearsed < difference.added:
        yield Wait(WaitReason.INCOMPLETE, preview.rehearsed, difference.added)
    growth = _bound(settings.max_growth, settings.max_change, difference.known)
    if difference.added > growth:
        yield Wait(WaitReason.GROWTH, difference.added, growth)
    if difference.known and not difference.entries:
        yield Wait(WaitReason.EMPTY, 0, difference.known)
    shrink = _bound(settings.max_shrink, settings.max_change, difference.known)
    if difference.dropped > shrink:
        yield Wait(WaitReason.SHRINK, difference.dropped, shrink)
    if preview.left_out_total > settings.max_left_out:
        yield Wait(WaitReason.LEFT_OUT, preview.left_out_total, settings.max_left_out)


def _bound(per_cent: int, most: int, known: int) -> int:
    """Return how many entries may change; the first update of a feed has the absolute bound alone."""
    share = max(SMALL, known * per_cent // 100) if known else most
    return min(share, most)
