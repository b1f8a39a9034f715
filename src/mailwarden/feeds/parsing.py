"""Reads the documents of a feed in its format."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain

from mailwarden.feeds.indicators import Indicator, Skipped, reject
from mailwarden.feeds.misp import manifest_events, read_misp
from mailwarden.feeds.model import FeedFormat, FeedSettings
from mailwarden.feeds.stix import objects_of, read_objects
from mailwarden.feeds.text_formats import read_csv, read_ndjson, read_plain


def parse(settings: FeedSettings, documents: Sequence[bytes], now: datetime, skipped: Skipped) -> Iterator[Indicator]:
    """Yield every indicator; raise FeedRejected if the feed cannot be read to its end or has too many items."""
    counted = _Counted(skipped, settings.max_entries)
    for indicator in _parse(settings, documents, now, counted):
        counted.count()
        yield indicator


class _Counted(Skipped):
    """Counts items towards the limit of entries, also those that the parser skips."""

    def __init__(self, skipped: Skipped, most: int) -> None:
        super().__init__()
        self._skipped = skipped
        self._most = most
        self._items = 0

    def add(self, reason: str, number: int = 1) -> None:
        self._skipped.add(reason, number)
        self.count(number)

    def count(self, number: int = 1) -> None:
        self._items += number
        if self._items > self._most:
            raise reject(f"the feed has more than {self._most:,} entries")


def _parse(settings: FeedSettings, documents: Sequence[bytes], now: datetime, skipped: Skipped) -> Iterator[Indicator]:
    limits, format_ = settings.limits, settings.format
    if format_ in (FeedFormat.STIX, FeedFormat.TAXII):
        yield from read_objects(chain.from_iterable(map(objects_of, documents)), now, limits, skipped)
    elif format_ is FeedFormat.MISP:
        several = len(documents) > 1 or manifest_events(documents[0]) is not None
        for document in documents[1:] if several else documents:
            yield from read_misp(document, skipped)
    elif format_ is FeedFormat.CSV:
        yield from read_csv(documents[0], settings.mapping, limits, skipped)
    elif format_ is FeedFormat.NDJSON:
        yield from read_ndjson(documents[0], settings.mapping, limits, skipped)
    else:
        yield from read_plain(documents[0], limits)
