"""People in a real PostgreSQL: made by links, seen and changed within a scope, and each step in the audit."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from mailwarden.access.audit import AuditStore
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.users import NewUser, Position, Role
from mailwarden.database.pool import Database
from mailwarden.errors import (
    LastAdministrator,
    LinkInvalid,
    NameTaken,
    SchemaViolation,
    TenantNotFound,
    UnsuitablePassword,
    UserNotFound,
)
from mailwarden.model.scope import Actor, Scope
from tests.samples.accounts import ADA, ALL, PASSWORD, PLACE, Accounts

ROOT = Position(Role.DEPLOYMENT_ADMINISTRATOR)


@pytest.fixture
async def accounts(database_url: str) -> AsyncIterator[Accounts]:
    database = Database(database_url)
    accounts = Accounts(database)
    yield accounts
    accounts.registry.passwords.close()
    await database.close()


@pytest.fixture
async def acme(accounts: Accounts) -> UUID:
    return (await TenantStore(accounts.database).create(ALL, "acme")).uid


async def test_the_first_link_makes_an_administrator_and_is_good_once(accounts: Accounts) -> None:
    token = await accounts.registry.links.create_first(ALL, ADA)
    session, _ = await accounts.accept(token, "Root")
    assert session.user is not None
    assert (session.user.name, session.user.role, session.user.scope) == ("Root", Role.DEPLOYMENT_ADMINISTRATOR, ALL)
    assert session.user.has_totp
    with pytest.raises(LinkInvalid):
        await accounts.setups.open(token, PLACE)
    # And another first link, made before or after, lets nobody in once somebody exists.
    with pytest.raises(LinkInvalid):
        await accounts.setups.open(await accounts.registry.links.create_first(ALL, ADA), PLACE)


async def test_the_first_link_works_for_one_of_two_concurrent_users(accounts: Accounts) -> None:
    token = await accounts.registry.links.create_first(ALL, ADA)
    one, _ = await accounts.setups.open(token, PLACE)
    two, _ = await accounts.setups.open(token, PLACE)
    one = await accounts.setups.choose(one, "one", PASSWORD)
    two = await accounts.setups.choose(two, "two", PASSWORD)
    accounts.secrets = {"one": one.notes.totp, "two": two.notes.totp}
    await accounts.setups.prove_totp(one, accounts.code("one"), PLACE)
    with pytest.raises(LinkInvalid):
        await accounts.setups.prove_totp(two, accounts.code("two"), PLACE)
    assert [user.name for user in await accounts.administration.list(ALL)] == ["one"]


async def test_the_first_link_works_only_without_users(accounts: Accounts) -> None:
    visit, _ = await accounts.setups.open(await accounts.registry.links.create_first(ALL, ADA), PLACE)
    visit = await accounts.setups.choose(visit, "late", PASSWORD)
    accounts.secrets["late"] = visit.notes.totp
    await accounts.create_user("early", Position(Role.AUDITOR))
    with pytest.raises(LinkInvalid):
        await accounts.setups.prove_totp(visit, accounts.code("late"), PLACE)


async def test_looking_at_a_link_or_mistyping_does_not_spend_it(accounts: Accounts) -> None:
    token = await accounts.registry.links.create_first(ALL, ADA)
    visit, _ = await accounts.setups.open(token, PLACE)
    for name, password in (("", PASSWORD), ("a b", PASSWORD)):
        with pytest.raises(SchemaViolation):
            await accounts.setups.choose(visit, name, password)
    for weak in ("short", "password1234", "x" * 300, "aaaaaaaaaaaaaaaa", "root1234567890"):
        with pytest.raises(UnsuitablePassword):
            await accounts.setups.choose(visit, "root", weak)
    await accounts.accept(token, "root")


async def test_an_expired_link_is_rejected(accounts: Accounts) -> None:
    token = await accounts.registry.links.invite(ALL, Position(Role.ANALYST), "", ADA)
    visit, _ = await accounts.setups.open(token, PLACE)
    async with accounts.database.connection() as connection:
        await connection.execute("UPDATE setup_links SET expires = now()")
    with pytest.raises(LinkInvalid):
        await accounts.setups.open(token, PLACE)
    with pytest.raises(LinkInvalid):
        await accounts.setups.choose(visit, "late", PASSWORD)


async def test_names_are_unique_without_case(accounts: Accounts) -> None:
    await accounts.create_user("Ada", ROOT)
    token = await accounts.registry.links.invite(ALL, ROOT, "", ADA)
    visit, _ = await accounts.setups.open(token, PLACE)
    with pytest.raises(NameTaken):
        await accounts.setups.choose(visit, "aDA", PASSWORD)
    with pytest.raises(NameTaken):
        await accounts.registry.users.create(ALL, NewUser("ADA", ROOT), ADA)


async def test_roles_and_tenants_must_fit(accounts: Accounts, acme: UUID) -> None:
    for position in (Position(Role.TENANT_ADMINISTRATOR), Position(Role.DEPLOYMENT_ADMINISTRATOR, frozenset({acme}))):
        with pytest.raises(SchemaViolation):
            await accounts.administration.invite(ALL, position, "", ADA)
    with pytest.raises(TenantNotFound):
        await accounts.administration.invite(ALL, Position(Role.ANALYST, frozenset({uuid4()})), "", ADA)
    assert (await accounts.create_user("reader", Position(Role.AUDITOR, frozenset({acme})))).scope == Scope.of(acme)
    assert (await accounts.create_user("wide", Position(Role.AUDITOR))).scope == ALL


async def test_the_last_administrator_stays(accounts: Accounts) -> None:
    root = await accounts.create_user("root", ROOT)
    with pytest.raises(LastAdministrator):
        await accounts.administration.disable(ALL, root.uid, ADA)
    with pytest.raises(LastAdministrator):
        await accounts.administration.move(ALL, root.uid, Position(Role.ANALYST), ADA)
    second = await accounts.create_user("second", ROOT)
    assert (await accounts.administration.disable(ALL, root.uid, ADA)).disabled
    with pytest.raises(LastAdministrator):
        await accounts.administration.disable(ALL, second.uid, ADA)


async def test_a_reset_user_has_only_the_new_factors(accounts: Accounts) -> None:
    await accounts.create_user("root", ROOT)
    _, value = await accounts.log_in("root")
    (root,) = await accounts.administration.list(ALL)
    token = await accounts.administration.renew(ALL, root.uid, ADA)
    assert await accounts.registry.sessions.find(value) is not None
    session, _ = await accounts.accept(token, "ignored", "another battery staple")
    assert session.user is not None
    assert (session.user.uid, session.user.name) == (root.uid, "root")
    assert await accounts.registry.sessions.find(value) is None
    await accounts.log_in("root", "another battery staple")


async def test_every_change_stands_in_the_audit_with_before_and_after(accounts: Accounts, acme: UUID) -> None:
    person = await accounts.create_user("own", Position(Role.ANALYST, frozenset({acme})))
    await accounts.administration.move(ALL, person.uid, Position(Role.AUDITOR, frozenset({acme})), ADA)
    await accounts.administration.disable(ALL, person.uid, ADA)
    disabled, moved, login, created, link = await AuditStore(accounts.database).find(ALL, limit=5)
    assert [deed.action for deed in (link, created, login)] == ["users.link", "users.create", "users.login"]
    assert (moved.action, moved.tenant, moved.subject) == ("users.move", acme, "user:own")
    assert [moved.details[when]["role"] for when in ("before", "after")] == ["analyst", "auditor"]  # type: ignore[index]
    assert disabled.details["after"]["disabled"] is True  # type: ignore[index]
    assert created.actor.name == "user:own"


async def test_links_of_a_moved_or_disabled_user_are_invalid(accounts: Accounts, acme: UUID) -> None:
    await accounts.create_user("root", ROOT)
    mine, maker = Scope.of(acme), Actor("user:boss")
    boss = await accounts.create_user("boss", Position(Role.TENANT_ADMINISTRATOR, frozenset({acme})))
    for change in (
        lambda: accounts.administration.move(ALL, boss.uid, Position(Role.ANALYST, frozenset({acme})), ADA),
        lambda: accounts.administration.disable(ALL, boss.uid, ADA),
    ):
        token = await accounts.administration.invite(mine, Position(Role.ANALYST, frozenset({acme})), "", maker)
        await accounts.setups.open(token, PLACE)
        await change()
        with pytest.raises(LinkInvalid):
            await accounts.setups.open(token, PLACE)


async def test_a_change_of_the_role_invalidates_links(accounts: Accounts, acme: UUID) -> None:
    """A tenant's administrator makes a link for an analyst, who is promoted: the link must not open the promotion."""
    await accounts.create_user("root", ROOT)
    mine, maker = Scope.of(acme), Actor("user:boss")
    ann = await accounts.create_user("ann", Position(Role.ANALYST, frozenset({acme})))
    for change in (
        lambda: accounts.administration.move(ALL, ann.uid, ROOT, ADA),
        lambda: accounts.administration.move(ALL, ann.uid, Position(Role.ANALYST, frozenset({acme})), ADA),
        lambda: accounts.administration.disable(ALL, ann.uid, ADA),
        lambda: accounts.administration.disable(ALL, ann.uid, ADA, disabled=False),
        lambda: accounts.registry.users.set_password(ALL, ann.uid, "hash", ADA),
    ):
        current = await accounts.administration.find(ALL, ann.uid)
        scope = mine if current.scope == mine else ALL
        token = await accounts.administration.renew(scope, ann.uid, maker)
        begun = None
        if not current.disabled:
            visit, _ = await accounts.setups.open(token, PLACE)
            begun = await accounts.setups.choose(visit, "ignored", "another battery staple")
            accounts.secrets["ann"] = begun.notes.totp
        await change()
        with pytest.raises(LinkInvalid):
            await accounts.setups.open(token, PLACE)
        if begun is not None:
            with pytest.raises(LinkInvalid):
                await accounts.setups.prove_totp(begun, accounts.code("ann"), PLACE)
    assert await accounts.administration.links(ALL) == []


async def test_a_link_uses_the_current_role(accounts: Accounts, acme: UUID) -> None:
    await accounts.create_user("root", ROOT)
    ann = await accounts.create_user("ann", Position(Role.ANALYST, frozenset({acme})))
    await accounts.administration.move(ALL, ann.uid, ROOT, ADA)
    with pytest.raises(UserNotFound):
        await accounts.registry.links.renew(Scope.of(acme), ann, ADA)  # read before the promotion
    assert await accounts.administration.links(ALL) == []


async def test_a_link_of_before_a_change_is_refused_even_if_it_is_still_there(accounts: Accounts, acme: UUID) -> None:
    await accounts.create_user("root", ROOT)
    ann = await accounts.create_user("ann", Position(Role.ANALYST, frozenset({acme})))
    token = await accounts.administration.renew(ALL, ann.uid, ADA)
    async with accounts.database.connection() as connection:  # beside the store, as a restored backup would
        await connection.execute("UPDATE users SET role = 'auditor' WHERE uid = $1", ann.uid)
    with pytest.raises(LinkInvalid):
        await accounts.setups.open(token, PLACE)
