"""What a change of a list would have done, answered from history in a real PostgreSQL."""

import random
from uuid import UUID

import msgspec
import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.matching import Match
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.listing import Listing
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Actor, Scope
from mailwarden.policy import impact as impact_module
from mailwarden.policy.impact import ImpactEstimator
from tests.unit.lists.memory_lists import TENANT, listed
from tests.unit.policy.test_rejudge import ENTRIES, POLICY, Sample

ACTOR = Actor("user:ada")


@pytest.fixture
def estimator(database: Database, monkeypatch: pytest.MonkeyPatch) -> ImpactEstimator:
    # How long it may take is another test's matter: a busy machine changes no answer here.
    for name in ("COUNT_SECONDS", "READ_SECONDS", "LOOKUP_SECONDS", "JUDGE_SECONDS"):
        monkeypatch.setattr(impact_module, name, 60.0)
    return ImpactEstimator(open_history(database), EntryStore(database), POLICY)


@pytest.fixture
async def acme(database: Database) -> UUID:
    return (await TenantStore(database).create(Scope.deployment(), "acme")).uid


async def keep(database: Database, tenant: UUID, *requests: FinishedRequest) -> None:
    kept = [
        msgspec.structs.replace(each, tenant=tenant, ggrid=new_ggrid(), listing=_of_tenant(each.listing, tenant))
        for each in requests
    ]
    assert (await open_history(database).save(Scope.deployment(), kept)).stored == len(kept)


def _of_tenant(listing: Listing, tenant: UUID) -> Listing:
    """Return the listing with the entries of the sample's tenant as entries of another one."""
    hits = (hit if hit.tenant is None else msgspec.structs.replace(hit, tenant=tenant) for hit in listing.acting)
    return msgspec.structs.replace(listing, acting=tuple(hits))


@pytest.mark.parametrize(("name", "entries"), ENTRIES, ids=[name for name, _ in ENTRIES])
async def test_messages_that_match_an_entry_are_found(
    name: str, entries: tuple[str, ...], database: Database, estimator: ImpactEstimator, acme: UUID
) -> None:
    chance = random.Random(name)
    samples = [Sample(chance) for _ in range(120)]
    await keep(database, acme, *(sample.processed() for sample in samples))
    for text in entries:
        match = listed(name, text)
        impact = await estimator.estimate(ListScope(acme), name, [match.entry])
        after = [sample.processed(match) for sample in samples]
        touched = [
            each
            for each in after
            if any(f.name.startswith("lists.") for r in each.evidence.reports for f in r.findings)
        ]
        assert impact.touched == len(touched)
        assert sum(impact.after.values()) == len(touched)
        decisions = [request.ruling.decision for request in touched]
        assert impact.after == {each: decisions.count(each) for each in Decision if each in decisions}
        assert impact.total_is_exact
        assert not impact.is_sampled


async def test_a_deletion_looks_for_the_entry_that_would_have_won_instead(
    database: Database, estimator: ImpactEstimator, acme: UUID
) -> None:
    sample = Sample(random.Random(3))
    sender = sample.summary.from_address
    block = Match("sender-block", sender, TENANT)
    await keep(database, acme, sample.processed(block))
    lists = ListService(ListStore(database, database))
    gone = await estimator.estimate(ListScope(acme), "sender-block", [sender], adds=False)
    assert (gone.touched, gone.before) == (1, {Decision.QUARANTINE: 1})
    domain = sender.partition("@")[2]
    for scope in (ListScope(acme), ListScope()):
        await lists.add_entries(scope, "sender-block", [ListEntryInput(domain), ListEntryInput(sender)], ACTOR)
    still = await estimator.estimate(ListScope(acme), "sender-block", [sender], adds=False)
    assert (still.touched, still.changed) == (1, 0)
    assert still.after == {Decision.QUARANTINE: 1}
    # An entry of the deployment did not act: the tenant's did.
    assert (await estimator.estimate(ListScope(), "sender-block", [sender], adds=False)).touched == 0


async def test_a_tenant_looks_back_at_its_own_messages_alone(
    database: Database, estimator: ImpactEstimator, acme: UUID
) -> None:
    other = (await TenantStore(database).create(Scope.deployment(), "other")).uid
    sample = Sample(random.Random(5))
    for tenant in (acme, other, other):
        await keep(database, tenant, sample.processed())
    entry = sample.summary.from_address
    assert (await estimator.estimate(ListScope(acme), "sender-block", [entry])).touched == 1
    assert (await estimator.estimate(ListScope(), "sender-block", [entry])).touched == 3


async def test_more_messages_than_can_be_judged_are_sampled_and_said(
    database: Database, estimator: ImpactEstimator, acme: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(random.Random(5))
    await keep(database, acme, *(sample.processed() for _ in range(30)))
    monkeypatch.setattr(impact_module, "MAX_JUDGED", 10)
    impact = await estimator.estimate(ListScope(acme), "sender-block", [sample.summary.from_address])
    assert (impact.looked_at, impact.total, impact.is_sampled) == (10, 30, True)


async def test_notes_name_inputs_that_history_does_not_store(estimator: ImpactEstimator, acme: UUID) -> None:
    impact = await estimator.estimate(ListScope(acme), "file-hash-block", ["a" * 32])
    assert impact.looked_at == 0
    assert any("SHA-256 only" in note for note in impact.notes)
    assert (await estimator.estimate(ListScope(acme), "attachment-block", [".exe"])).notes
    assert (await estimator.estimate(ListScope(acme), "url-allow", ["a.example"], adds=False)).notes
