"""A deployment with two tenants, a month of good mail and feeds in files, on a real PostgreSQL."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.feeds.assembly import open_feeds
from mailwarden.feeds.fetching import HttpAnswer
from mailwarden.feeds.job import LEASE, FeedJob
from mailwarden.feeds.model import Feed, FeedFormat, FeedSettings, Update
from mailwarden.feeds.service import Outcome
from mailwarden.history.opening import open_history
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from mailwarden.senders.lookup import SenderHistory
from mailwarden.telemetry.metrics import Metrics

ALL = Scope.deployment()
POLICY = load_policy()
ADA = Actor("user:ada")


class Posted:
    """An HTTP client that records what is posted; feeds of these tests are files."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpAnswer:
        raise AssertionError(f"{url} was fetched")

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.bodies.append(body)
        return 200


class FeedSetup:
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.http = Posted()
        self.moment = datetime.now(UTC)
        self.service = open_feeds(database, self.http, KeyRing.of(b"k" * 32), POLICY)
        self.service._clock = lambda: self.moment
        self.job = FeedJob(self.service, self.http, Metrics(), clock=lambda: self.moment)
        lists = ListStore(database, database)
        self.entries = EntryStore(database)
        self.lists = ListService(lists)
        self.file = folder / "feed.txt"

    async def tenant(self, name: str, *domains: str) -> UUID:
        return (await TenantStore(self.database).create(ALL, name, domains)).uid

    def write(self, lines: Iterable[str]) -> None:
        self.file.write_text("".join(f"{line}\n" for line in lines))

    async def add(self, tenant: UUID | None, list_name: str = "sender-block", **settings: object) -> Feed:
        given = {"source": str(self.file), "format": FeedFormat.TEXT, "listName": list_name, **settings}
        return await self.service.add(tenant, "poison", msgspec.convert(given, FeedSettings), ADA)

    async def run(self, feed: Feed) -> Outcome | None:
        """Run the feed as the job does."""
        claimed = await self.service.store.claim(ALL, self.moment, LEASE, feed.uid)
        assert claimed is not None
        return await self.job.run(claimed)

    async def later(self, feed: Feed, **passed: int) -> Outcome | None:
        self.moment += timedelta(**passed)
        return await self.run(feed)

    async def failure(self, feed: Feed) -> str:
        return (await self.service.store.find(ALL, feed.uid)).failure

    async def newest(self, feed: Feed) -> Update:
        return (await self.service.store.updates(feed, 1))[0]

    async def blocked(self, tenant: UUID | None, list_name: str = "sender-block") -> list[str]:
        page = await self.lists.page(ListScope(tenant), list_name)
        return [each.entry for each in page.entries]

    async def count(self, tenant: UUID | None, list_name: str = "sender-block") -> int:
        return (await self.lists.counts(ListScope(tenant))).get(list_name, 0)

    async def good_mail(self, tenant: UUID, senders: Sequence[str], *, known: bool = True) -> None:
        """Save a good message of each sender in history, and with `known` also as a correspondent."""
        requests = [good_message(tenant, sender) for sender in senders]
        history = open_history(self.database)
        assert (await history.save(ALL, requests)).stored == len(requests)
        if known:
            await SenderHistory(history.senders).record(requests)


def good_message(tenant: UUID, sender: str) -> FinishedRequest:
    evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0),))
    judgement = judge(evidence, POLICY)
    ruling = decide(judgement, Assignment(tenant, AssignedBy.REQUEST, Profile.BALANCED), POLICY)
    created = datetime.now(UTC)
    host = sender.rpartition("@")[2]
    summary = MessageSummary(1, "f" * 64, from_address=sender, subject=f"Order of {sender}", url_hosts=(f"www.{host}",))
    return FinishedRequest(
        new_ggrid(), tenant, created, created, "restApi", "g", Envelope(sender, ("bob@acme.example",)), summary,
        evidence, judgement, ruling, Profile.BALANCED,
    )  # fmt: skip
