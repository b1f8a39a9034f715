"""The rehearsal of a feed's entries: entries whose messages history cannot show in full never count as rehearsed."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest

from mailwarden.lists.store import ListScope
from mailwarden.message.limits import SHOWN
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.record import FinishedRequest, LinkSummary, MessageSummary
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rehearsal import RELAYS, UNSEEN, Rehearsal, Rehearsed
from mailwarden.policy.rules import load_policy
from mailwarden.search.count import Count
from mailwarden.search.terms import terms_of
from tests.unit.lists.memory_lists import TENANT

POLICY = load_policy()
ADDRESS = "198.51.100.7"


class MemoryHistory:
    """Finds messages by their terms, as the index does."""

    def __init__(self, *requests: FinishedRequest) -> None:
        self._requests = requests

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        return [each for each in self._requests if not set(terms).isdisjoint(terms_of(each))]

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:
        found = await self.candidates(scope, terms, since, 0)
        return Count(len(found), exact=True, estimate=len(found))


class Used:
    """The lists that have entries."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def in_use(self, scope: ListScope, list_name: str) -> bool:
        return list_name in self._names


NOTHING, NO_LISTS = Listing(), Used()


def good_message(*targets: str, hosts: Sequence[str] = (), listing: Listing = NOTHING) -> FinishedRequest:
    evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0),))
    judgement = judge(evidence, POLICY)
    ruling = decide(judgement, Assignment(TENANT, AssignedBy.REQUEST, Profile.BALANCED), POLICY)
    links = tuple(LinkSummary(each, each, each.split("/")[2]) for each in targets)
    named = tuple(sorted({*hosts, *(link.host for link in links)}))
    now = datetime.now(UTC)
    return FinishedRequest(
        new_ggrid(), TENANT, now, now, "restApi", "g", Envelope("a@b.example", ("c@d.example",), ADDRESS),
        MessageSummary(1, "f" * 64, url_hosts=named, links=links), evidence, judgement, ruling, Profile.BALANCED,
        listing=listing,
    )  # fmt: skip


async def rehearse(
    list_name: str, entry: str, *requests: FinishedRequest, used: Used = NO_LISTS, accept_unseen: bool = False
) -> Rehearsed:
    async def batches() -> AsyncIterator[Sequence[str]]:
        yield [entry]

    rehearsal = Rehearsal(MemoryHistory(*requests), POLICY, used)
    return await rehearsal.run(ListScope(TENANT), list_name, batches(), 0, accept_unseen=accept_unseen)


@pytest.mark.parametrize(
    ("list_name", "entry", "used"),
    [("ip-block", "203.0.113.9", Used(*RELAYS)), ("file-hash-block", "a" * 64, Used())],
)
async def test_entries_count_only_if_history_sees_their_messages(list_name: str, entry: str, used: Used) -> None:
    blind = await rehearse(list_name, entry, used=used)
    assert (blind.entries, blind.notes[-1]) == (0, UNSEEN)
    accepted = await rehearse(list_name, entry, used=used, accept_unseen=True)
    assert accepted.entries == 1
    assert UNSEEN not in accepted.notes


async def test_addresses_without_relays_are_rehearsed() -> None:
    assert (await rehearse("ip-block", "203.0.113.9", good_message())).entries == 1
    assert (await rehearse("ip-block", ADDRESS, good_message())).good_mail == 1
    once_trusted = Listing((ListHit(RELAYS[0], ADDRESS, TENANT, value=ADDRESS),))
    assert (await rehearse("ip-block", ADDRESS, good_message(listing=once_trusted))).good_mail == 1


MANY = [f"https://host{number}.example/" for number in range(SHOWN.links - 1)]


@pytest.mark.parametrize(
    ("entry", "message", "hits"),
    [
        ("shop.example/a", good_message("https://shop.example/a"), 1),
        ("shop.example/b", good_message("https://shop.example/a"), 0),
        ("shop.example/b", good_message("https://shop.example/a", *MANY), 1),
        ("other.example/b", good_message("https://shop.example/a", *MANY), 0),
        ("shop.example/b", good_message("https://shop.example/" + "a" * SHOWN.link), 1),
        ("shop.example/b", good_message(hosts=["shop.example"]), 1),
        ("shop.example:8080", good_message(hosts=["shop.example"]), 1),
        ("shop.example/b", good_message("https://www.shop.example/a", *MANY), 0),
    ],
)
async def test_a_page_is_a_hit_where_links_are_missing(entry: str, message: FinishedRequest, hits: int) -> None:
    rehearsed = await rehearse("url-block", entry, message)
    assert (rehearsed.entries, rehearsed.good_mail) == (1, hits)
