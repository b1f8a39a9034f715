"""Passkeys against a real PostgreSQL and an authenticator in software: how they let in, and how they must not."""

import json
from collections.abc import AsyncIterator

import pytest

from mailwarden.access.accounts import Account
from mailwarden.access.factors import MAX_PASSKEY_ANSWER
from mailwarden.access.sessions import ClientOrigin, Session
from mailwarden.access.users import Position, Role
from mailwarden.database.pool import Database
from mailwarden.errors import LoginFailed, NameTaken, SchemaViolation
from tests.samples.accounts import ADA, ALL, PASSWORD, PLACE, Accounts
from tests.samples.authenticator import PRESENT, VERIFIED, Authenticator

ROOT = Position(Role.DEPLOYMENT_ADMINISTRATOR)


@pytest.fixture
async def accounts(database_url: str) -> AsyncIterator[Accounts]:
    database = Database(database_url)
    accounts = Accounts(database)
    yield accounts
    accounts.registry.passwords.close()
    await database.close()


@pytest.fixture
def stick() -> Authenticator:
    return Authenticator()


async def set_up(accounts: Accounts, stick: Authenticator, name: str = "root") -> Session:
    """Follow a setup link to the end, with a passkey."""
    visit, _ = await accounts.setups.open(await accounts.registry.links.invite(ALL, ROOT, "", ADA), PLACE)
    visit = await accounts.setups.choose(visit, name, PASSWORD)
    visit, options = await accounts.setups.offer_passkey(visit, PLACE)
    session, _ = await accounts.setups.prove_passkey(visit, stick.make(options), PLACE)
    return session


async def ask(accounts: Accounts) -> tuple[Session, str]:
    visit, _ = accounts.registry.sessions.visit()
    visit, _, options = await accounts.logins.offer_passkey(visit, PLACE)
    return visit, options


async def test_a_passkey_alone_lets_its_person_in(accounts: Accounts, stick: Authenticator) -> None:
    made = await set_up(accounts, stick)
    assert made.user is not None
    assert (made.user.passkeys, made.user.has_totp) == (1, False)
    for _ in range(2):
        visit, options = await ask(accounts)
        session, _ = await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)
        assert session.user is not None
        assert (session.user.name, session.method) == ("root", "passkey")


async def test_the_browser_is_asked_for_a_resident_key_and_a_verified_person(accounts: Accounts) -> None:
    visit, _ = await accounts.setups.open(await accounts.registry.links.invite(ALL, ROOT, "", ADA), PLACE)
    visit = await accounts.setups.choose(visit, "root", PASSWORD)
    _, options = await accounts.setups.offer_passkey(visit, PLACE)
    wanted = json.loads(options)
    assert wanted["authenticatorSelection"]["residentKey"] == "required"
    assert wanted["authenticatorSelection"]["userVerification"] == "required"
    assert wanted["rp"]["id"] == "mail.example"
    _, options = await ask(accounts)
    assert json.loads(options)["userVerification"] == "required"
    assert not json.loads(options).get("allowCredentials")  # nobody learns who has one


@pytest.mark.parametrize(
    ("cheat", "changes"),
    [
        ({"origin": "https://evil.example"}, {}),
        ({"origin": "https://mail.example"}, {}),
        ({"origin": "http://mail.example:9081"}, {}),
        ({"rp_id": "evil.example"}, {}),
        ({"flags": PRESENT}, {}),
        ({"flags": VERIFIED}, {}),
        ({}, {"type": "webauthn.create"}),
        ({}, {"challenge": "AAAA"}),
    ],
    ids=str,
)
async def test_an_answer_that_is_not_for_this_site_and_person_is_refused(
    accounts: Accounts, stick: Authenticator, cheat: dict[str, object], changes: dict[str, str]
) -> None:
    await set_up(accounts, stick)
    for name, value in cheat.items():
        setattr(stick, name, value)
    visit, options = await ask(accounts)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, stick.sign(options, **changes), PLACE)


async def test_a_passkey_without_user_verification_is_rejected_at_setup(
    accounts: Accounts, stick: Authenticator
) -> None:
    stick.flags = PRESENT
    with pytest.raises(LoginFailed):
        await set_up(accounts, stick)
    assert await accounts.registry.users.is_empty(ALL)


async def test_a_challenge_is_good_for_one_answer(accounts: Accounts, stick: Authenticator) -> None:
    await set_up(accounts, stick)
    visit, _ = accounts.registry.sessions.visit()
    visit, value, options = await accounts.logins.offer_passkey(visit, PLACE)
    assert value is not None
    wrong = Authenticator(credential=stick.credential)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, wrong.sign(options), PLACE)
    later = await accounts.registry.sessions.find(value)
    assert later is not None
    other, _ = await ask(accounts)
    for each in (visit, later, other):  # as it was, as it is now, and another's
        with pytest.raises(LoginFailed):
            await accounts.logins.check_passkey(each, stick.sign(options), PLACE)


async def test_a_decreasing_counter_reveals_a_copied_passkey(accounts: Accounts, stick: Authenticator) -> None:
    await set_up(accounts, stick)
    stick.counter = 10
    visit, options = await ask(accounts)
    await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)
    stick.counter = 5
    visit, options = await ask(accounts)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_passkey_that_does_not_count_is_good(accounts: Accounts) -> None:
    stick = Authenticator(counts=False)
    await set_up(accounts, stick)
    for _ in range(2):
        visit, options = await ask(accounts)
        await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_the_second_factor_of_one_person_is_not_anothers(accounts: Accounts, stick: Authenticator) -> None:
    await set_up(accounts, stick)
    await accounts.create_user("other", ROOT)
    visit, _ = accounts.registry.sessions.visit()
    visit, _ = await accounts.logins.check_password(visit, "other", PASSWORD, PLACE)
    visit, _, options = await accounts.logins.offer_passkey(visit, PLACE)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_disabled_person_has_no_use_of_a_passkey(accounts: Accounts, stick: Authenticator) -> None:
    made = await set_up(accounts, stick)
    await accounts.create_user("other", ROOT)
    assert made.user is not None
    await accounts.administration.disable(ALL, made.user.uid, ADA)
    visit, options = await ask(accounts)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)


@pytest.mark.parametrize("answer", ["", "[]", "{}", "null", '"x"', '{"id": 1}', "x" * (MAX_PASSKEY_ANSWER + 1)])
async def test_nonsense_is_refused(accounts: Accounts, answer: str) -> None:
    visit, _ = await ask(accounts)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, answer, PLACE)


async def test_a_person_has_several_passkeys_by_name_and_never_loses_the_last_factor(
    accounts: Accounts, stick: Authenticator
) -> None:
    session = await set_up(accounts, stick)
    account = Account(accounts.registry)
    (only,) = await account.passkeys(session)
    with pytest.raises(SchemaViolation):
        await account.remove_passkey(session, only.passkey_id, PLACE)
    with pytest.raises(LoginFailed):
        await account.offer_passkey(session, "not the password", PLACE)
    second = Authenticator()
    session, options = await account.offer_passkey(session, PASSWORD, PLACE)
    assert len(json.loads(options)["excludeCredentials"]) == 1
    await account.add_passkey(session, second.make(options), " blue   key ", PLACE)
    assert [passkey.name for passkey in await account.passkeys(session)] == ["First passkey", "blue key"]
    visit, options = await ask(accounts)
    fresh, _ = await accounts.logins.check_passkey(visit, second.sign(options), PLACE)
    assert await account.remove_passkey(fresh, only.passkey_id, PLACE)
    visit, options = await ask(accounts)
    with pytest.raises(LoginFailed):
        await accounts.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_passkey_belongs_to_one_person(accounts: Accounts, stick: Authenticator) -> None:
    await set_up(accounts, stick)
    with pytest.raises(NameTaken):
        await set_up(accounts, stick, "thief")


async def test_an_address_has_no_passkeys(accounts: Accounts) -> None:
    visit, _ = accounts.registry.sessions.visit()
    for site in ("https://127.0.0.1:9081", "https://[::1]:9081", "https://[::1", "https://"):
        assert not ClientOrigin(site).takes_passkeys
        with pytest.raises(SchemaViolation):
            await accounts.logins.offer_passkey(visit, ClientOrigin(site))
