"""Fetches the content of a feed: one document, the pages of a TAXII collection, or the events of a MISP feed.

Security: the source is a third party. Bytes, pages and time are bounded; redirects are not followed, so that the
credential is sent to no other host; an answer that ends early rejects the whole update.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urljoin

import msgspec
from msgspec import Struct

from mailwarden.errors import FeedUnreachable
from mailwarden.feeds.indicators import cut, reject
from mailwarden.feeds.misp import manifest_events
from mailwarden.feeds.model import Feed, FeedFormat

SECONDS = 600.0  # for all documents of a feed
MAX_PAGES = 1_000
PAGE_SIZE = 5_000
TAXII = "application/taxii+json;version=2.1"


class HttpAnswer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class HttpClient(Protocol):
    """The guarded HTTP client: public addresses and configured networks alone, TLS checked, no redirects."""

    async def get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpAnswer:
        """Return a complete answer, or raise FeedUnreachable; a longer body raises FeedRejected."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Post the body and return the status, or raise FeedUnreachable."""


class Fetched(Struct, frozen=True):
    """All documents of a feed, and the validators for the next request."""

    documents: tuple[bytes, ...]
    etag: str = ""
    modified: str = ""

    @property
    def digest(self) -> bytes:
        state = hashlib.sha256()
        for document in self.documents:
            state.update(hashlib.sha256(document).digest())
        return state.digest()


async def fetch(feed: Feed, http: HttpClient, credential: Mapping[str, str]) -> Fetched | None:
    """Return the content of the feed, or None if it did not change since the last time."""
    reader = _Reader(http, credential, feed.settings.limits.max_bytes)
    try:
        async with asyncio.timeout(SECONDS):
            if feed.settings.format is FeedFormat.TAXII:
                return await reader.collection(feed.settings.source)
            return await reader.document(feed)
    except TimeoutError:
        raise FeedUnreachable(f"The feed was not complete within {SECONDS:.0f} seconds.") from None


class _Envelope(Struct, frozen=True):
    """The part of an envelope of TAXII that leads to the next page; the decoder passes over the objects."""

    more: bool = False
    next: str | None = None


def _read_envelope(body: bytes, where: str) -> _Envelope:
    try:
        return msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise reject(f"no envelope of TAXII 2.1: {error}", where) from None


class _Reader:
    """Reads the documents of one feed within its limit of bytes."""

    def __init__(self, http: HttpClient, credential: Mapping[str, str], max_bytes: int) -> None:
        self._http = http
        self._credential = credential
        self._left = max_bytes

    async def document(self, feed: Feed) -> Fetched | None:
        source = feed.settings.source
        if feed.settings.is_file:
            first = await self._read_file(Path(source))
            etag = modified = ""
        else:
            answer = await self._get(source, {"If-None-Match": feed.etag, "If-Modified-Since": feed.modified})
            if answer is None:
                return None
            first = answer.body
            etag, modified = (cut(answer.headers.get(name, "")) for name in ("etag", "last-modified"))
        if feed.settings.format is not FeedFormat.MISP:
            return Fetched((first,), etag, modified)
        names = await asyncio.to_thread(manifest_events, first)
        if names is None:
            return Fetched((first,), etag, modified)
        events = [await self._event(feed, name) for name in names]
        return Fetched((first, *events), etag, modified)

    async def collection(self, source: str) -> Fetched:
        """Read all pages of a collection (TAXII 2.1, sections 3.4 and 5.4)."""
        pages: list[bytes] = []
        following, seen = "", set[str]()
        for _ in range(MAX_PAGES):
            query = f"match[type]=indicator&limit={PAGE_SIZE}"
            if following:
                query += f"&next={quote(following, safe='')}"
            separator = "&" if "?" in source else "?"
            answer = await self._get(f"{source}{separator}{query}", {"Accept": TAXII})
            assert answer is not None  # without validators
            pages.append(answer.body)
            envelope = await asyncio.to_thread(_read_envelope, answer.body, f"Page {len(pages)}")
            if not envelope.more:
                return Fetched(tuple(pages))
            following = envelope.next or ""
            if not following or following in seen:
                raise reject("`more` is true, but `next` is missing or was there before", f"Page {len(pages)}")
            seen.add(following)
        raise reject(f"the collection has more than {MAX_PAGES:,} pages")

    async def _event(self, feed: Feed, name: str) -> bytes:
        if feed.settings.is_file:
            return await self._read_file(Path(feed.settings.source).parent / f"{name}.json")
        answer = await self._get(urljoin(feed.settings.source, f"{name}.json"), {})
        assert answer is not None
        return answer.body

    async def _get(self, url: str, headers: Mapping[str, str]) -> HttpAnswer | None:
        given = {name: value for name, value in headers.items() if value}
        answer = await self._http.get(url, {**given, **self._credential}, self._left)
        if answer.status == 304 and ("If-None-Match" in given or "If-Modified-Since" in given):
            return None
        if 300 <= answer.status < 400:
            raise FeedUnreachable(
                f"The source answered {answer.status}. Redirects are not followed: set the final URL."
            )
        if answer.status in (401, 403):
            raise FeedUnreachable(f"The source answered {answer.status}: check the credential of the feed.")
        if answer.status != 200:
            raise FeedUnreachable(f"The source answered {answer.status}.")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise FeedUnreachable("The source sent a compressed answer, which was not asked for.")
        self._left -= len(answer.body)
        return answer

    async def _read_file(self, path: Path) -> bytes:
        try:
            data = await asyncio.to_thread(_read_at_most, path, self._left)
        except OSError as error:
            raise FeedUnreachable(f"Cannot read {path}: {error.strerror}.") from None
        if len(data) > self._left:
            raise reject("the feed has more bytes than its limit")
        self._left -= len(data)
        return data


def _read_at_most(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size + 1)
