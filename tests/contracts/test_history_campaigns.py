"""Every history store groups similar messages of a tenant, and never reveals the mail of another tenant."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from mailwarden.history.maintenance import Retention
from mailwarden.history.store import CampaignStore, HistoryStore
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import BINS, Key, KeyKind, Similarity
from mailwarden.search.query import parse_query
from tests.contracts.conftest import OpenStore
from tests.samples.finished import finished_request
from tests.unit.journal.journals import write_all

ALL = Scope.deployment()
ACME, GLOBEX = uuid4(), uuid4()


def today() -> date:
    return datetime.now(UTC).date()


def similarity(seed: int, *others: Key) -> Similarity:
    chance = random.Random(seed)
    text = tuple(Key(KeyKind.TEXT, chance.getrandbits(63)) for _ in range(6))
    return Similarity((*text, *others), chance.randbytes(2 * BINS))


@pytest.fixture
def campaigns(store: HistoryStore) -> CampaignStore:
    return store.campaigns


async def assign(
    campaigns: CampaignStore, *messages: Similarity, tenant: UUID = ACME, scope: Scope = ALL
) -> Sequence[CampaignIds | None]:
    return await campaigns.assign(scope, [(tenant, each) for each in messages], today())


async def test_similar_messages_get_one_campaign_and_others_another(campaigns: CampaignStore) -> None:
    first, same, other = await assign(campaigns, similarity(1), similarity(1), similarity(2))
    assert first == same != other
    assert (await assign(campaigns, similarity(2), similarity(1)))[:2] == [other, first]


async def test_a_message_without_keys_has_no_campaign(campaigns: CampaignStore) -> None:
    assert await assign(campaigns, Similarity()) == [None]
    assert await assign(campaigns) == []


async def test_the_text_of_a_message_with_the_same_link_joins_too(campaigns: CampaignStore) -> None:
    link = Key(KeyKind.LINK, 77)
    first = await assign(campaigns, similarity(1, link))
    assert await assign(campaigns, similarity(2, link)) == first
    assert await assign(campaigns, similarity(2)) == first, "its text is compared with as well"


async def test_tenants_have_campaigns_of_their_own_and_a_shared_one(campaigns: CampaignStore) -> None:
    (acme,) = await assign(campaigns, similarity(1))
    (globex,) = await assign(campaigns, similarity(1), tenant=GLOBEX)
    assert acme
    assert globex
    assert acme.own != globex.own
    assert acme.shared == globex.shared
    assert len({acme.own, acme.shared, globex.own}) == 3


async def test_mail_of_another_tenant_joins_no_messages_of_a_tenant(campaigns: CampaignStore) -> None:
    one, two = Key(KeyKind.LINK, 1), Key(KeyKind.FILES, 2)
    await assign(campaigns, similarity(1, one, two), tenant=GLOBEX)
    (a,) = await assign(campaigns, similarity(2, one))
    (b,) = await assign(campaigns, similarity(3, two))
    assert a
    assert b
    assert a.own != b.own, "or a tenant could find out what another one received"
    assert a.shared == b.shared


async def test_a_scope_groups_its_own_tenants_only(campaigns: CampaignStore) -> None:
    assert await assign(campaigns, similarity(1), scope=Scope.of(GLOBEX)) == [None]


async def test_guards_that_see_a_campaign_at_once_give_it_one_id(open_store: OpenStore) -> None:
    stores = [open_store().campaigns for _ in range(4)]
    for round_ in range(10):
        batches = [
            stores[number % 4].assign(ALL, [(ACME if number % 2 else GLOBEX, similarity(round_))] * 20, today())
            for number in range(8)
        ]
        found = {ids for batch in await asyncio.gather(*batches) for ids in batch}
        assert None not in found
        assert len(found) == 2, "one for each tenant"
        assert len({ids.shared for ids in found if ids}) == 1


async def test_campaigns_without_new_messages_are_forgotten(campaigns: CampaignStore) -> None:
    old = today() - timedelta(days=40)
    (first,) = await campaigns.assign(ALL, [(ACME, similarity(1))], old)
    await campaigns.assign(ALL, [(ACME, similarity(2))], old)
    assert await assign(campaigns, similarity(1)) == [first], "seen today, so it stays"
    assert await campaigns.delete_unseen(Scope.of(GLOBEX), today()) == 0
    assert await campaigns.delete_unseen(ALL, today() - timedelta(days=30)) == 1
    assert await assign(campaigns, similarity(1)) == [first]
    assert await campaigns.delete_unseen(Scope.of(ACME), today() + timedelta(days=1)) == 1
    assert await assign(campaigns, similarity(1)) != [first]


async def test_retention_forgets_campaigns_with_the_history(store: HistoryStore) -> None:
    old = today() - timedelta(days=8)
    await store.campaigns.assign(ALL, [(ACME, similarity(1))], old)
    assert await Retention(store, days=10).delete_campaigns() == 0
    assert await Retention(store, days=7).delete_campaigns() == 1


def message(tenant: UUID, seed: int, subject: str = "One") -> FinishedRequest:
    request = finished_request(tenant, subject=subject)
    return replace(request, summary=replace(request.summary, similarity=similarity(seed)))


async def write(store: HistoryStore, requests: Sequence[FinishedRequest]) -> None:
    with TemporaryDirectory() as folder:
        await write_all(Path(folder), store, requests, store.campaigns)


async def test_a_search_finds_the_campaign_within_the_scope(store: HistoryStore) -> None:
    await write(store, [message(ACME, 1), message(ACME, 1), message(GLOBEX, 1), message(ACME, 2)])
    everything = await store.search(ALL, parse_query(""))
    shared = next(row.campaign for row in everything.rows if row.tenant == GLOBEX)
    assert [row.campaign for row in everything.rows].count(shared) == 3
    assert len((await store.search(ALL, parse_query(f"campaign:{shared}"))).rows) == 3
    own = {row.campaign for row in (await store.search(Scope.of(ACME), parse_query(""))).rows}
    assert len(own) == 2
    assert shared not in own, "only the deployment learns what tenants share"
    for campaign in own:
        rows = (await store.search(Scope.of(ACME, GLOBEX), parse_query(f"campaign:{campaign}"))).rows
        assert {row.tenant for row in rows} == {ACME}
