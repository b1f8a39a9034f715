"""Sightings and sources: which host gets the credential, and what of a source is shown."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailwarden.errors import SchemaViolation
from mailwarden.feeds.fetching import HttpAnswer
from mailwarden.feeds.model import MAX_JSON, Feed, FeedFormat, FeedSettings
from mailwarden.feeds.sightings import report_sightings
from mailwarden.feeds.store import FeedStore, Sighting

SECRET = {"Authorization": "Bearer s3cret"}
SOURCE = "https://feeds.example/list.txt?key=s3cret#top"


class OneSighting(FeedStore):
    """A store with one entry that was hit."""

    def __init__(self) -> None:
        self.reported = 0

    async def sightings(self, feed: Feed, limit: int) -> Sequence[Sighting]:
        return [Sighting("thief.example", 3, 3, "2026-11-17T10:00:00.000Z", "line 1")]

    async def set_reported(self, feed: Feed, sightings: Sequence[Sighting]) -> None:
        self.reported += len(sightings)


class Receiver:
    """Records the request fields of what is posted."""

    def __init__(self) -> None:
        self.fields: Mapping[str, str] = {}

    async def get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpAnswer:
        raise AssertionError(f"{url} was fetched")

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.fields = headers
        return 200


@pytest.mark.parametrize(
    ("source", "url", "gets_it"),
    [
        (SOURCE, "https://FEEDS.example:443/sightings", True),
        (SOURCE, "https://other.example/sightings", False),
        (SOURCE, "https://feeds.example:8443/sightings", False),
        (SOURCE, "https://feeds.example.other.example/", False),
        ("/srv/feed.txt", "https://feeds.example/sightings", False),
    ],
)
async def test_the_credential_goes_to_the_source_alone(source: str, url: str, *, gets_it: bool) -> None:
    now, http, store = datetime.now(UTC), Receiver(), OneSighting()
    settings = FeedSettings(source, FeedFormat.TEXT, "url-block", sighting_url=url).checked()
    feed = Feed(UUID(int=1), None, "x", settings, now, "cli:root", now)
    assert await report_sightings(feed, store, http, SECRET) == store.reported == 1
    assert ("Authorization" in http.fields) is gets_it
    assert http.fields["Content-Type"] == "application/x-ndjson"


def test_the_query_of_a_source_is_masked() -> None:
    assert FeedSettings(SOURCE, FeedFormat.TEXT, "url-block").shown_source == "https://feeds.example/list.txt?…"
    assert FeedSettings("/srv/a?b", FeedFormat.TEXT, "url-block").shown_source == "/srv/a?b"


@pytest.mark.parametrize("form", [FeedFormat.MISP, FeedFormat.STIX, FeedFormat.TAXII])
def test_a_json_document_has_at_most_64_mib(form: FeedFormat) -> None:
    settings = FeedSettings(SOURCE, form, "url-block", max_bytes=MAX_JSON + 1)
    with pytest.raises(SchemaViolation, match="67,108,864 bytes"):
        settings.checked()
    assert settings.limits.max_bytes == MAX_JSON, "also for a feed that was added before"
    assert (
        FeedSettings(SOURCE, FeedFormat.TEXT, "url-block", max_bytes=MAX_JSON + 1).checked().limits.max_bytes > MAX_JSON
    )
