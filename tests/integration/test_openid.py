"""Logging in by a real provider on loopback, and every way in which a login must not succeed."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest

from mailwarden.access.openid import OpenId, OpenIdSettings, Provider
from mailwarden.access.sessions import Session
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.users import Position, Role
from mailwarden.database.pool import Database
from mailwarden.errors import LoginFailed, ProviderUnreachable
from tests.samples.accounts import ADA, ALL, PLACE, Accounts
from tests.samples.openid import CLIENT, SECRET, SmallProvider

ROLES = {"soc": Role.ANALYST, "admins": Role.DEPLOYMENT_ADMINISTRATOR, "tenant": Role.TENANT_ADMINISTRATOR}
REDIRECT = "https://mail.example:9081/console/login/openid/callback"


@pytest.fixture
async def accounts(database_url: str) -> AsyncIterator[Accounts]:
    database = Database(database_url)
    accounts = Accounts(database)
    yield accounts
    accounts.registry.passwords.close()
    await database.close()


@pytest.fixture
async def provider() -> AsyncIterator[SmallProvider]:
    running = await SmallProvider().start()
    yield running
    await running.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def settings(provider: SmallProvider) -> OpenIdSettings:
    return OpenIdSettings(provider.issuer, CLIENT, SECRET, ROLES, REDIRECT)


@pytest.fixture
def openid(accounts: Accounts, settings: OpenIdSettings, http: aiohttp.ClientSession) -> OpenId:
    return OpenId(settings, Provider(settings, http), accounts.registry, accounts.logins)


async def leave(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> tuple[Session, dict[str, str]]:
    """Go to the provider and return the visit, and what the browser comes back with."""
    visit, _ = accounts.registry.sessions.visit()
    address, value = await openid.begin(visit)
    back = provider.authorize(address)
    found = await accounts.registry.sessions.find(value)
    assert found is not None
    return found, back


async def log_in(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> Session:
    visit, back = await leave(accounts, openid, provider)
    session, _ = await openid.finish(visit, back, PLACE)
    return session


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_user_of_the_provider_is_logged_in(
    accounts: Accounts, openid: OpenId, provider: SmallProvider, algorithm: str
) -> None:
    provider.algorithm = algorithm
    provider.claims |= {"preferred_username": "eve", "email": "eve@company.example"}
    user = (await log_in(accounts, openid, provider)).user
    assert user is not None
    assert (user.name, user.role, user.email, user.issuer) == (
        "eve",
        Role.ANALYST,
        "eve@company.example",
        provider.issuer,
    )
    assert not user.has_password
    again = (await log_in(accounts, openid, provider)).user
    assert again is not None
    assert again.uid == user.uid


async def test_every_login_takes_the_role_from_the_provider(
    accounts: Accounts, openid: OpenId, provider: SmallProvider
) -> None:
    await accounts.create_user("root", Position(Role.DEPLOYMENT_ADMINISTRATOR))
    first = (await log_in(accounts, openid, provider)).user
    provider.claims["roles"] = ["nothing", "soc", "admins"]
    second = (await log_in(accounts, openid, provider)).user
    assert first is not None
    assert second is not None
    assert (first.role, second.role) == (Role.ANALYST, Role.DEPLOYMENT_ADMINISTRATOR)
    provider.claims["roles"] = []
    with pytest.raises(LoginFailed):
        await log_in(accounts, openid, provider)


async def test_an_existing_name_is_not_taken_over(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> None:
    root = await accounts.create_user("root", Position(Role.DEPLOYMENT_ADMINISTRATOR))
    provider.claims |= {"preferred_username": "Root", "sub": "8"}
    user = (await log_in(accounts, openid, provider)).user
    assert user is not None
    assert user.uid != root.uid
    assert (user.name, user.role) == ("Root-2", Role.ANALYST)


async def test_a_disabled_user_stays_disabled(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> None:
    user = (await log_in(accounts, openid, provider)).user
    assert user is not None
    await accounts.administration.disable(ALL, user.uid, ADA)
    with pytest.raises(LoginFailed):
        await log_in(accounts, openid, provider)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "somebody-else"},
        {"aud": [CLIENT, "somebody-else"]},
        {"azp": "somebody-else"},
        {"iss": "https://evil.example"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iat": 9_000_000_000},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 300},
        {"roles": None},
        {"roles": "nothing"},
        {"roles": {"soc": True}},
    ],
    ids=lambda changes: " ".join(f"{name} {str(value)[:20]}" for name, value in changes.items()),
)
async def test_a_token_of_another_login_is_rejected(
    accounts: Accounts, openid: OpenId, provider: SmallProvider, changes: dict[str, object]
) -> None:
    provider.changes = changes
    with pytest.raises(LoginFailed):
        await log_in(accounts, openid, provider)
    assert await accounts.registry.users.is_empty(ALL)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_a_token_with_another_algorithm_is_rejected(
    accounts: Accounts, openid: OpenId, provider: SmallProvider, algorithm: str
) -> None:
    provider.algorithm = algorithm
    with pytest.raises(LoginFailed):
        await log_in(accounts, openid, provider)


async def test_a_token_of_an_unknown_key_is_rejected_and_keys_are_fetched_rarely(
    accounts: Accounts, openid: OpenId, provider: SmallProvider
) -> None:
    provider.signs_with_strange_key = True
    for _ in range(4):
        with pytest.raises(LoginFailed):
            await log_in(accounts, openid, provider)
    assert provider.asked_for_keys == 1


@pytest.mark.parametrize("state", ["", "another", None])
async def test_an_answer_to_another_visit_is_rejected_without_a_query(
    accounts: Accounts, openid: OpenId, provider: SmallProvider, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit, back = await leave(accounts, openid, provider)
    wrong = {**back, "state": state} if state is not None else {"code": back["code"]}
    monkeypatch.setattr(accounts.database, "connection", None)
    with pytest.raises(LoginFailed):
        await openid.finish(visit, wrong, PLACE)


async def test_a_visit_takes_one_answer_with_its_state(
    accounts: Accounts, openid: OpenId, provider: SmallProvider
) -> None:
    visit, back = await leave(accounts, openid, provider)
    with pytest.raises(LoginFailed):
        await openid.finish(visit, {**back, "code": "wrong"}, PLACE)
    with pytest.raises(LoginFailed):
        await openid.finish(visit, back, PLACE)


async def test_a_used_code_is_rejected(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> None:
    visit, back = await leave(accounts, openid, provider)
    await openid.finish(visit, back, PLACE)
    with pytest.raises(LoginFailed):  # the visit is gone
        await openid.finish(visit, back, PLACE)
    other, fresh = await leave(accounts, openid, provider)
    with pytest.raises(LoginFailed):  # and so is the code
        await openid.finish(other, {**fresh, "code": back["code"]}, PLACE)


async def test_a_code_of_another_session_is_rejected(
    accounts: Accounts, openid: OpenId, provider: SmallProvider
) -> None:
    _, stolen = await leave(accounts, openid, provider)
    visit, back = await leave(accounts, openid, provider)
    with pytest.raises(LoginFailed):  # PKCE: the verifier is the other visit's
        await openid.finish(visit, {**back, "code": stolen["code"]}, PLACE)


async def test_an_error_or_another_issuer_is_rejected(
    accounts: Accounts, openid: OpenId, provider: SmallProvider
) -> None:
    for more in ({"iss": "https://evil.example"}, {"error": "access_denied"}, {"code": ""}):
        visit, back = await leave(accounts, openid, provider)
        with pytest.raises(LoginFailed):
            await openid.finish(visit, {**back, **more}, PLACE)


@pytest.mark.parametrize(
    "description",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "ftp://evil.example/token"},
        {"jwks_uri": 7},
        {"filler": "x" * 300_000},
    ],
    ids=["issuer", "scheme", "type", "size"],
)
async def test_a_provider_that_describes_itself_wrongly_is_not_used(
    accounts: Accounts, openid: OpenId, provider: SmallProvider, description: dict[str, object]
) -> None:
    provider.description = description
    visit, _ = accounts.registry.sessions.visit()
    with pytest.raises(LoginFailed):
        await openid.begin(visit)


async def test_an_unreachable_provider_is_reported(accounts: Accounts, openid: OpenId, provider: SmallProvider) -> None:
    await provider.stop()
    visit, _ = accounts.registry.sessions.visit()
    with pytest.raises(ProviderUnreachable):
        await openid.begin(visit)


async def test_tenants_of_a_claim_bind_and_their_absence_never_widens(
    accounts: Accounts, provider: SmallProvider, settings: OpenIdSettings, http: aiohttp.ClientSession
) -> None:
    bound = msgspec.structs.replace(settings, tenants_claim="tenants")
    openid = OpenId(bound, Provider(bound, http), accounts.registry, accounts.logins)
    acme: UUID = (await TenantStore(accounts.database).create(ALL, "acme")).uid
    provider.claims["tenants"] = [str(acme)]
    user = (await log_in(accounts, openid, provider)).user
    assert user is not None
    assert user.tenants == frozenset({acme})
    for tenants in (None, [], ["acme"], [str(uuid4())], [str(acme), str(uuid4())]):
        provider.claims["tenants"] = tenants
        with pytest.raises(LoginFailed):
            await log_in(accounts, openid, provider)
