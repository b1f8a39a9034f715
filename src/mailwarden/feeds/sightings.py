"""Reports hits of a feed's entries back to its source: NDJSON, or the sightings of MISP's REST interface.

Off unless the feed has a sighting URL. Only the entry, the number of new hits and the time of the last one leave:
nothing about messages, recipients or tenants.

Security: the credential of the feed is sent to its source alone, not to another host that the sightings go to.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from mailwarden.errors import FeedUnreachable
from mailwarden.feeds.fetching import HttpClient
from mailwarden.feeds.model import Feed, SightingFormat
from mailwarden.feeds.store import FeedStore, Sighting

MAX_REPORTED = 500  # entries of one run
SOURCE = "mailwarden"


async def report_sightings(feed: Feed, store: FeedStore, http: HttpClient, credential: Mapping[str, str]) -> int:
    """Report the new hits of a feed; return for how many entries. A failed report is tried again at the next run."""
    if not feed.settings.sighting_url:
        return 0
    found = await store.sightings(feed, MAX_REPORTED)
    if not found:
        return 0
    body, media_type = body_of(found, feed.settings.sighting_format)
    headers = {"Content-Type": media_type, "Accept": "application/json"}
    if feed.settings.reports_to_source:
        headers |= credential
    status = await http.send(feed.settings.sighting_url, headers, body)
    if not 200 <= status < 300:
        raise FeedUnreachable(f"The source answered {status} to the sightings.")
    await store.set_reported(feed, found)
    return len(found)


def body_of(sightings: Sequence[Sighting], sighting_format: SightingFormat) -> tuple[bytes, str]:
    """Return the body and its media type."""
    if sighting_format is SightingFormat.MISP:
        newest = max((sighting.last_hit for sighting in sightings), default="")
        moment = datetime.fromisoformat(newest) if newest else datetime.now(UTC)
        values = [sighting.entry for sighting in sightings]
        request = {"values": values, "timestamp": int(moment.timestamp()), "source": SOURCE}
        return msgspec.json.encode(request), "application/json"
    lines = (
        msgspec.json.encode(
            {
                "value": sighting.entry,
                "count": sighting.new,
                "lastHit": sighting.last_hit or None,
                "reference": sighting.reference,
            }
        )
        for sighting in sightings
    )
    return b"".join(line + b"\n" for line in lines), "application/x-ndjson"
