"""Tenants in a real PostgreSQL, and the directory that follows them."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from mailwarden.access.audit import AuditFilter, AuditStore
from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.database.pool import Database
from mailwarden.errors import DomainTaken, GlobalScopeForbidden, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import AssignedBy, Profile
from tests.waiting import eventually

ALL = Scope.deployment()


@pytest.fixture
def store(database: Database) -> TenantStore:
    return TenantStore(database)


async def test_a_new_database_has_the_default_tenant_alone(store: TenantStore) -> None:
    (tenant,) = await store.list(ALL)
    assert (tenant.name, tenant.is_default, tenant.profile, tenant.domains) == ("default", True, Profile.BALANCED, ())


async def test_a_tenant_is_listed_as_it_was_made(store: TenantStore) -> None:
    made = await store.create(ALL, " Acme ", ["B.example.", "a.example", "A.EXAMPLE"], Profile.STRICT)
    assert made.domains == ("a.example", "b.example")
    assert made.name == "Acme"
    assert made in await store.list(ALL)


@pytest.mark.parametrize("profile", Profile)
async def test_a_tenant_may_have_every_profile(store: TenantStore, profile: Profile) -> None:
    made = await store.create(ALL, "acme", profile=profile)
    assert (made.profile, made in await store.list(ALL)) == (profile, True)


async def test_a_tenant_has_weights_of_its_own_until_they_are_forgotten(store: TenantStore, database: Database) -> None:
    acme = await store.create(ALL, "acme")
    weighed = await store.set_weights(ALL, acme.uid, {"html.b": 5, "html.a": -3}, Actor("cli:root"))
    assert weighed.weights == {"html.a": -3, "html.b": 5}
    assert weighed in await store.list(ALL)
    moved = await store.change(ALL, acme.uid, TenantSettings("acme two"), Actor("cli:root"))
    assert moved.weights == weighed.weights
    deed = (await AuditStore(database).find(Scope.of(acme.uid), AuditFilter(action="tenants.weights")))[0]
    assert deed.details["after"] == {"weights": {"html.a": -3, "html.b": 5}}
    assert (await store.set_weights(ALL, acme.uid, {}, Actor("cli:root"))).weights == {}
    with pytest.raises(GlobalScopeForbidden):
        await store.set_weights(Scope.of(acme.uid), acme.uid, {}, Actor("cli:root"))
    with pytest.raises(TenantNotFound):
        await store.set_weights(ALL, uuid4(), {}, Actor("cli:root"))
    with pytest.raises(SchemaViolation):
        await store.set_weights(ALL, acme.uid, {f"html.a{number}": 1 for number in range(51)}, Actor("cli:root"))


async def test_one_weight_changes_and_the_others_stay(store: TenantStore, database: Database) -> None:
    acme, other = await store.create(ALL, "acme"), await store.create(ALL, "other")
    own, actor = Scope.of(acme.uid), Actor("user:ada")
    await asyncio.gather(*(store.change_weights(own, acme.uid, {f"html.r{n}": n}, actor) for n in range(8)))
    await store.change_weights(own, acme.uid, {"html.r0": None}, actor, why={"message": "m"})
    found = {tenant.name: tenant.weights for tenant in await store.list(ALL)}
    assert found["acme"] == {f"html.r{n}": n for n in range(1, 8)}
    assert found["other"] == {}
    events = await AuditStore(database).find(own, AuditFilter(action="tenants.weights"))
    assert (len(events), events[0].details["message"], events[0].actor.name) == (9, "m", "user:ada")
    with pytest.raises(TenantNotFound):
        await store.change_weights(own, other.uid, {"html.a": 1}, actor)
    with pytest.raises(SchemaViolation, match="at most 50"):
        await store.change_weights(own, acme.uid, {f"html.a{n}": 1 for n in range(44)}, actor)


async def test_weights_that_are_not_as_expected_stay(store: TenantStore, database: Database) -> None:
    acme = await store.create(ALL, "acme")
    await store.change_weights(ALL, acme.uid, {"html.a": 5}, Actor("user:ada"))
    expected = {"html.a": 4}
    assert await store.change_weights(ALL, acme.uid, {"html.a": None}, Actor("user:eve"), expected=expected) is None
    assert (await store.change_weights(ALL, acme.uid, {"html.a": 5}, Actor("user:eve"))) is not None
    events = await AuditStore(database).find(Scope.of(acme.uid), AuditFilter(action="tenants.weights"))
    assert [event.actor.name for event in events] == ["user:ada"]
    undone = await store.change_weights(ALL, acme.uid, {"html.a": None}, Actor("user:eve"), expected={"html.a": 5})
    assert undone is not None
    assert undone.weights == {}


async def test_a_scope_lists_its_own_tenants_alone(store: TenantStore) -> None:
    acme, _ = await store.create(ALL, "acme"), await store.create(ALL, "other")
    assert await store.list(Scope.of(acme.uid)) == [acme]
    assert await store.list(Scope.of(uuid4())) == []
    assert await store.list(Scope.of()) == []
    with pytest.raises(GlobalScopeForbidden):
        await store.create(Scope.of(acme.uid), "mine")


async def test_a_domain_wanted_by_many_at_once_goes_to_one(store: TenantStore) -> None:
    done = await asyncio.gather(
        *(store.create(ALL, f"t{n}", ["z.example", "a.example"]) for n in range(8)), return_exceptions=True
    )
    assert sum(not isinstance(result, BaseException) for result in done) == 1
    assert sum(isinstance(result, NameTaken | DomainTaken) for result in done) == 7


async def test_a_change_that_takes_anothers_name_or_domain_changes_nothing(store: TenantStore) -> None:
    acme = await store.create(ALL, "acme", ["a.example"])
    await store.create(ALL, "other", ["b.example"])
    for wishes, refusal in ((TenantSettings("OTHER"), NameTaken), (TenantSettings("acme", ["b.example"]), DomainTaken)):
        with pytest.raises(refusal):
            await store.change(ALL, acme.uid, wishes, Actor("user:alice"))
    with pytest.raises(SchemaViolation):
        await store.change(ALL, acme.uid, TenantSettings("acme", retention_days=0), Actor("user:alice"))
    with pytest.raises(GlobalScopeForbidden):
        await store.change(Scope.of(acme.uid), acme.uid, TenantSettings("mine"), Actor("user:alice"))
    with pytest.raises(TenantNotFound):
        await store.change(ALL, uuid4(), TenantSettings("mine"), Actor("user:alice"))
    assert acme in await store.list(ALL)


async def test_the_audit_filters_by_actor_action_and_time_with_pages(store: TenantStore, database: Database) -> None:
    audit = AuditStore(database)
    for number in range(5):
        await store.create(ALL, f"t{number}", actor=Actor("user:alice" if number % 2 else "user:bob"))
    assert [deed.subject for deed in await audit.find(ALL, AuditFilter(actor="user:alice"))] == ["t3", "t1"]
    first = await audit.find(ALL, AuditFilter(action="tenants.create"), limit=2)
    rest = await audit.find(ALL, AuditFilter(action="tenants.create", before=first[-1].number))
    assert [deed.subject for deed in (*first, *rest)] == ["t4", "t3", "t2", "t1", "t0"]
    assert await audit.find(ALL, AuditFilter(until=first[-1].moment - timedelta(days=1))) == []
    assert [deed async for page in audit.pages(ALL) for deed in page] == await audit.find(ALL)
    assert await audit.find(Scope.of(uuid4())) == []


@pytest.mark.parametrize(
    ("name", "domain"), [("", "a.example"), ("a\nb", "a.example"), ("x" * 101, "a.example"), ("acme", "no domain")]
)
async def test_nonsense_is_refused_before_anything_is_written(store: TenantStore, name: str, domain: str) -> None:
    with pytest.raises(SchemaViolation):
        await store.create(ALL, name, [domain])
    assert len(await store.list(ALL)) == 1


async def test_the_directory_follows_a_change_and_reads_nothing_without_one(store: TenantStore) -> None:
    directory = TenantDirectory(store)
    assert await directory.refresh()
    assert not await directory.refresh()
    assert directory.assign("a@acme.example").by is AssignedBy.DEFAULT
    acme = await store.create(ALL, "acme", ["acme.example"])
    assert await directory.refresh()
    assert directory.assign("a@acme.example").tenant == acme.uid
    with pytest.raises(TenantNotFound):
        directory.group(uuid4(), [])


async def test_the_directory_in_the_background_sees_a_change_made_by_hand(
    store: TenantStore, database_url: str
) -> None:
    acme = await store.create(ALL, "acme", ["acme.example"])
    directory = TenantDirectory(store, interval=0.05)
    await directory.start()
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE tenants SET profile = 'strict' WHERE name = 'acme'")
    await connection.close()
    await eventually(lambda: directory.group(acme.uid, [])[0].assignment.profile is Profile.STRICT)
    await directory.stop()


async def test_the_directory_keeps_its_state_while_the_database_is_down(database_url: str) -> None:
    database = Database(database_url)
    directory = TenantDirectory(TenantStore(database), interval=0.05)
    await directory.start()
    await database.close()
    await asyncio.sleep(0.2)  # several refreshes fail meanwhile
    assert directory.loaded
    assert directory.assign("a@acme.example").by is AssignedBy.DEFAULT
    await directory.stop()
