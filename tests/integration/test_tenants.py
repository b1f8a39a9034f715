"""Tenants in a real PostgreSQL, and the directory that follows them."""

import asyncio
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from mailwarden.access.directory import TenantDirectory
from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, GlobalScopeForbidden, SchemaViolation, TenantNotFound
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy, Profile

ALL = Scope.deployment()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[TenantStore]:
    database = Database(database_url)
    yield TenantStore(database)
    await database.close()


async def test_a_new_database_has_the_default_tenant_alone(store: TenantStore) -> None:
    (tenant,) = await store.list(ALL)
    assert (tenant.name, tenant.is_default, tenant.profile, tenant.domains) == ("default", True, Profile.BALANCED, ())


async def test_a_tenant_is_listed_as_it_was_made(store: TenantStore) -> None:
    made = await store.create(ALL, " Acme ", ["B.example.", "a.example", "A.EXAMPLE"], Profile.STRICT)
    assert made.domains == ("a.example", "b.example")
    assert made.name == "Acme"
    assert made in await store.list(ALL)


async def test_a_scope_lists_its_own_tenants_alone(store: TenantStore) -> None:
    acme, _ = await store.create(ALL, "acme"), await store.create(ALL, "other")
    assert await store.list(Scope.of(acme.uid)) == [acme]
    assert await store.list(Scope.of(uuid4())) == []
    assert await store.list(Scope.of()) == []
    with pytest.raises(GlobalScopeForbidden):
        await store.create(Scope.of(acme.uid), "mine")


async def test_a_name_and_a_domain_belong_to_one_tenant(store: TenantStore) -> None:
    await store.create(ALL, "acme", ["a.example"])
    with pytest.raises(CommandError, match="named `ACME` exists"):
        await store.create(ALL, "ACME")
    with pytest.raises(CommandError, match=r"`a\.example` belongs to the tenant `acme`"):
        await store.create(ALL, "other", ["b.example", "A.example"])
    assert [tenant.name for tenant in await store.list(ALL)] == ["acme", "default"]


async def test_a_domain_wanted_by_many_at_once_goes_to_one(store: TenantStore) -> None:
    done = await asyncio.gather(
        *(store.create(ALL, f"t{n}", ["z.example", "a.example"]) for n in range(8)), return_exceptions=True
    )
    assert sum(not isinstance(result, BaseException) for result in done) == 1
    assert sum(isinstance(result, CommandError) for result in done) == 7


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
    assert directory.assign(None, ["a@acme.example"]).by is AssignedBy.DEFAULT
    acme = await store.create(ALL, "acme", ["acme.example"])
    assert await directory.refresh()
    assert directory.assign(None, ["a@acme.example"]).tenant == acme.uid
    with pytest.raises(TenantNotFound):
        directory.assign(uuid4(), [])


async def test_the_directory_in_the_background_sees_a_change_made_by_hand(
    store: TenantStore, database_url: str
) -> None:
    acme = await store.create(ALL, "acme", ["acme.example"])
    directory = TenantDirectory(store, interval=0.05)
    await directory.start()
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE tenants SET profile = 'strict' WHERE name = 'acme'")
    await connection.close()
    until = time.monotonic() + 5
    while directory.assign(acme.uid, []).profile is not Profile.STRICT:
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    await directory.stop()


async def test_the_directory_keeps_its_last_state_while_the_database_is_away(database_url: str) -> None:
    database = Database(database_url)
    directory = TenantDirectory(TenantStore(database), interval=0.05)
    await directory.start()
    await database.close()
    await asyncio.sleep(0.2)
    assert directory.loaded
    assert directory.assign(None, ["a@acme.example"]).by is AssignedBy.DEFAULT
    await directory.stop()
