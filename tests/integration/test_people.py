"""People in a real PostgreSQL: made by links, seen and changed within a scope, and each step in the audit."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from mailwarden.access.audit import AuditStore
from mailwarden.access.tenants import TenantStore
from mailwarden.access.users import NewUser, Position, Role
from mailwarden.database.pool import Database
from mailwarden.errors import (
    Forbidden,
    LastAdministrator,
    LinkSpent,
    NameTaken,
    PersonNotFound,
    SchemaViolation,
    TenantNotFound,
    UnsuitablePassword,
)
from mailwarden.model.scope import Actor, Scope
from tests.samples.people import ADA, ALL, PASSWORD, PLACE, Office

ROOT = Position(Role.DEPLOYMENT_ADMINISTRATOR)


@pytest.fixture
async def office(database_url: str) -> AsyncIterator[Office]:
    database = Database(database_url)
    office = Office(database)
    yield office
    office.registry.passwords.close()
    await database.close()


@pytest.fixture
async def acme(office: Office) -> UUID:
    return (await TenantStore(office.database).create(ALL, "acme")).uid


@pytest.fixture
async def club(office: Office) -> UUID:
    return (await TenantStore(office.database).create(ALL, "club")).uid


async def test_the_first_link_makes_an_administrator_and_is_good_once(office: Office) -> None:
    token = await office.registry.links.create_first(ALL, ADA)
    session, _ = await office.accept(token, "Root")
    assert session.user is not None
    assert (session.user.name, session.user.role, session.user.scope) == ("Root", Role.DEPLOYMENT_ADMINISTRATOR, ALL)
    assert session.user.has_totp
    with pytest.raises(LinkSpent):
        await office.setups.open(token, PLACE)
    # And another first link, made before or after, lets nobody in once somebody exists.
    with pytest.raises(LinkSpent):
        await office.setups.open(await office.registry.links.create_first(ALL, ADA), PLACE)


async def test_of_two_who_open_the_first_link_at_once_one_gets_in(office: Office) -> None:
    token = await office.registry.links.create_first(ALL, ADA)
    one, _ = await office.setups.open(token, PLACE)
    two, _ = await office.setups.open(token, PLACE)
    one = await office.setups.choose(one, "one", PASSWORD)
    two = await office.setups.choose(two, "two", PASSWORD)
    office.secrets = {"one": one.notes.totp, "two": two.notes.totp}
    await office.setups.prove_totp(one, office.code("one"), PLACE)
    with pytest.raises(LinkSpent):
        await office.setups.prove_totp(two, office.code("two"), PLACE)
    assert [user.name for user in await office.administration.list(ALL)] == ["one"]


async def test_the_first_link_is_good_only_while_nobody_exists(office: Office) -> None:
    visit, _ = await office.setups.open(await office.registry.links.create_first(ALL, ADA), PLACE)
    visit = await office.setups.choose(visit, "late", PASSWORD)
    office.secrets["late"] = visit.notes.totp
    await office.hire("early", Position(Role.AUDITOR))
    with pytest.raises(LinkSpent):
        await office.setups.prove_totp(visit, office.code("late"), PLACE)


async def test_looking_at_a_link_or_mistyping_does_not_spend_it(office: Office) -> None:
    token = await office.registry.links.create_first(ALL, ADA)
    visit, _ = await office.setups.open(token, PLACE)
    for name, password in (("", PASSWORD), ("a b", PASSWORD)):
        with pytest.raises(SchemaViolation):
            await office.setups.choose(visit, name, password)
    for weak in ("short", "password1234", "x" * 300, "aaaaaaaaaaaaaaaa", "root1234567890"):
        with pytest.raises(UnsuitablePassword):
            await office.setups.choose(visit, "root", weak)
    await office.accept(token, "root")


async def test_a_link_that_is_too_old_lets_nobody_in(office: Office) -> None:
    token = await office.registry.links.invite(ALL, Position(Role.ANALYST), "", ADA)
    visit, _ = await office.setups.open(token, PLACE)
    async with office.database.connection() as connection:
        await connection.execute("UPDATE setup_links SET expires = now()")
    with pytest.raises(LinkSpent):
        await office.setups.open(token, PLACE)
    with pytest.raises(LinkSpent):
        await office.setups.choose(visit, "late", PASSWORD)


async def test_names_are_unique_however_they_are_written(office: Office) -> None:
    await office.hire("Ada", ROOT)
    token = await office.registry.links.invite(ALL, ROOT, "", ADA)
    visit, _ = await office.setups.open(token, PLACE)
    with pytest.raises(NameTaken):
        await office.setups.choose(visit, "aDA", PASSWORD)
    with pytest.raises(NameTaken):
        await office.registry.users.create(ALL, NewUser("ADA", ROOT), ADA)


async def test_a_tenant_administrator_sees_and_changes_the_people_of_their_tenants_alone(
    office: Office, acme: UUID, club: UUID
) -> None:
    mine, administration = Scope.of(acme), office.administration
    own = await office.hire("own", Position(Role.ANALYST, frozenset({acme})))
    others = [
        await office.hire("root", ROOT),
        await office.hire("wide", Position(Role.ANALYST)),
        await office.hire("club", Position(Role.TENANT_ADMINISTRATOR, frozenset({club}))),
        await office.hire("both", Position(Role.AUDITOR, frozenset({acme, club}))),
    ]
    assert [user.name for user in await administration.list(mine)] == ["own"]
    for other in others:
        with pytest.raises(PersonNotFound):
            await administration.find(mine, other.uid)
        with pytest.raises(PersonNotFound):
            await administration.disable(mine, other.uid, ADA)
        with pytest.raises(PersonNotFound):
            await administration.renew(mine, other.uid, ADA)
        with pytest.raises(PersonNotFound):
            await administration.move(mine, other.uid, Position(Role.ANALYST, frozenset({acme})), ADA)
    for beyond in (ROOT, Position(Role.ANALYST), Position(Role.AUDITOR, frozenset({club}))):
        with pytest.raises(Forbidden):
            await administration.invite(mine, beyond, "", ADA)
        with pytest.raises(Forbidden):
            await administration.move(mine, own.uid, beyond, ADA)
    moved = await administration.move(mine, own.uid, Position(Role.TENANT_ADMINISTRATOR, frozenset({acme})), ADA)
    assert moved.scope == mine
    link = await office.registry.links.invite(ALL, Position(Role.ANALYST, frozenset({club})), "", ADA)
    assert link
    assert await administration.links(mine) == []
    (seen,) = await administration.links(ALL)
    assert not await administration.withdraw(mine, seen.link_id, ADA)
    assert await administration.withdraw(ALL, seen.link_id, ADA)
    with pytest.raises(LinkSpent):
        await office.setups.open(link, PLACE)


async def test_roles_and_tenants_must_fit(office: Office, acme: UUID) -> None:
    for position in (Position(Role.TENANT_ADMINISTRATOR), Position(Role.DEPLOYMENT_ADMINISTRATOR, frozenset({acme}))):
        with pytest.raises(SchemaViolation):
            await office.administration.invite(ALL, position, "", ADA)
    with pytest.raises(TenantNotFound):
        await office.administration.invite(ALL, Position(Role.ANALYST, frozenset({uuid4()})), "", ADA)
    assert (await office.hire("reader", Position(Role.AUDITOR, frozenset({acme})))).scope == Scope.of(acme)
    assert (await office.hire("wide", Position(Role.AUDITOR))).scope == ALL


async def test_the_last_administrator_stays(office: Office) -> None:
    root = await office.hire("root", ROOT)
    with pytest.raises(LastAdministrator):
        await office.administration.disable(ALL, root.uid, ADA)
    with pytest.raises(LastAdministrator):
        await office.administration.move(ALL, root.uid, Position(Role.ANALYST), ADA)
    second = await office.hire("second", ROOT)
    assert (await office.administration.disable(ALL, root.uid, ADA)).disabled
    with pytest.raises(LastAdministrator):
        await office.administration.disable(ALL, second.uid, ADA)


async def test_a_renewed_person_has_only_what_they_chose_now(office: Office) -> None:
    await office.hire("root", ROOT)
    _, value = await office.log_in("root")
    (root,) = await office.administration.list(ALL)
    token = await office.administration.renew(ALL, root.uid, ADA)
    assert await office.registry.sessions.find(value) is not None
    session, _ = await office.accept(token, "ignored", "another battery staple")
    assert session.user is not None
    assert (session.user.uid, session.user.name) == (root.uid, "root")
    assert await office.registry.sessions.find(value) is None
    await office.log_in("root", "another battery staple")


async def test_every_change_stands_in_the_audit_with_before_and_after(office: Office, acme: UUID) -> None:
    person = await office.hire("own", Position(Role.ANALYST, frozenset({acme})))
    await office.administration.move(ALL, person.uid, Position(Role.AUDITOR, frozenset({acme})), ADA)
    await office.administration.disable(ALL, person.uid, ADA)
    disabled, moved, login, created, link = await AuditStore(office.database).find(ALL, limit=5)
    assert [deed.action for deed in (link, created, login)] == ["people.link", "people.create", "people.login"]
    assert (moved.action, moved.tenant, moved.subject) == ("people.move", acme, "user:own")
    assert [moved.details[when]["role"] for when in ("before", "after")] == ["analyst", "auditor"]  # type: ignore[index]
    assert disabled.details["after"]["disabled"] is True  # type: ignore[index]
    assert created.actor.name == "user:own"


async def test_links_of_somebody_who_was_moved_or_shut_out_are_good_no_longer(office: Office, acme: UUID) -> None:
    await office.hire("root", ROOT)
    mine, maker = Scope.of(acme), Actor("user:boss")
    boss = await office.hire("boss", Position(Role.TENANT_ADMINISTRATOR, frozenset({acme})))
    for change in (
        lambda: office.administration.move(ALL, boss.uid, Position(Role.ANALYST, frozenset({acme})), ADA),
        lambda: office.administration.disable(ALL, boss.uid, ADA),
    ):
        token = await office.administration.invite(mine, Position(Role.ANALYST, frozenset({acme})), "", maker)
        await office.setups.open(token, PLACE)
        await change()
        with pytest.raises(LinkSpent):
            await office.setups.open(token, PLACE)


async def test_links_for_somebody_end_with_every_change_of_what_they_may(office: Office, acme: UUID) -> None:
    """A tenant's administrator makes a link for an analyst, who is promoted: the link must not open the promotion."""
    await office.hire("root", ROOT)
    mine, maker = Scope.of(acme), Actor("user:boss")
    ann = await office.hire("ann", Position(Role.ANALYST, frozenset({acme})))
    for change in (
        lambda: office.administration.move(ALL, ann.uid, ROOT, ADA),
        lambda: office.administration.move(ALL, ann.uid, Position(Role.ANALYST, frozenset({acme})), ADA),
        lambda: office.administration.disable(ALL, ann.uid, ADA),
        lambda: office.administration.disable(ALL, ann.uid, ADA, disabled=False),
        lambda: office.registry.users.set_password(ALL, ann.uid, "hash", ADA),
    ):
        current = await office.administration.find(ALL, ann.uid)
        scope = mine if current.scope == mine else ALL
        token = await office.administration.renew(scope, ann.uid, maker)
        begun = None
        if not current.disabled:
            visit, _ = await office.setups.open(token, PLACE)
            begun = await office.setups.choose(visit, "ignored", "another battery staple")
            office.secrets["ann"] = begun.notes.totp
        await change()
        with pytest.raises(LinkSpent):
            await office.setups.open(token, PLACE)
        if begun is not None:
            with pytest.raises(LinkSpent):
                await office.setups.prove_totp(begun, office.code("ann"), PLACE)
    assert await office.administration.links(ALL) == []


async def test_a_link_is_made_for_what_a_person_is_now(office: Office, acme: UUID) -> None:
    await office.hire("root", ROOT)
    ann = await office.hire("ann", Position(Role.ANALYST, frozenset({acme})))
    await office.administration.move(ALL, ann.uid, ROOT, ADA)
    with pytest.raises(PersonNotFound):
        await office.registry.links.renew(Scope.of(acme), ann, ADA)  # read before the promotion
    assert await office.administration.links(ALL) == []


async def test_a_link_of_before_a_change_is_refused_even_if_it_is_still_there(office: Office, acme: UUID) -> None:
    await office.hire("root", ROOT)
    ann = await office.hire("ann", Position(Role.ANALYST, frozenset({acme})))
    token = await office.administration.renew(ALL, ann.uid, ADA)
    async with office.database.connection() as connection:  # beside the store, as a restored backup would
        await connection.execute("UPDATE people SET role = 'auditor' WHERE uid = $1", ann.uid)
    with pytest.raises(LinkSpent):
        await office.setups.open(token, PLACE)


async def test_sessions_end_when_a_person_gets_another_role(office: Office, acme: UUID) -> None:
    await office.hire("root", ROOT)
    ann = await office.hire("ann", Position(Role.ANALYST, frozenset({acme})))
    _, value = await office.log_in("ann")
    await office.administration.move(ALL, ann.uid, ROOT, ADA)
    assert await office.registry.sessions.find(value) is None
    session, _ = await office.log_in("ann")
    assert session.user is not None
    assert session.user.role is Role.DEPLOYMENT_ADMINISTRATOR
