"""Passkeys against a real PostgreSQL and an authenticator in software: how they let in, and how they must not."""

import json
from collections.abc import AsyncIterator

import pytest

from mailwarden.access.accounts import Account
from mailwarden.access.factors import MAX_ANSWER
from mailwarden.access.sessions import ClientOrigin, Session
from mailwarden.access.users import Position, Role
from mailwarden.database.pool import Database
from mailwarden.errors import LoginFailed, NameTaken, SchemaViolation
from tests.samples.authenticator import PRESENT, VERIFIED, Authenticator
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
def stick() -> Authenticator:
    return Authenticator()


async def set_up(office: Office, stick: Authenticator, name: str = "root") -> Session:
    """Follow a setup link to the end, with a passkey."""
    visit, _ = await office.setups.open(await office.registry.links.invite(ALL, ROOT, "", ADA), PLACE)
    visit = await office.setups.choose(visit, name, PASSWORD)
    visit, options = await office.setups.offer_passkey(visit, PLACE)
    session, _ = await office.setups.prove_passkey(visit, stick.make(options), PLACE)
    return session


async def ask(office: Office) -> tuple[Session, str]:
    visit, _ = office.registry.sessions.visit()
    visit, _, options = await office.logins.offer_passkey(visit, PLACE)
    return visit, options


async def test_a_passkey_alone_lets_its_person_in(office: Office, stick: Authenticator) -> None:
    made = await set_up(office, stick)
    assert made.user is not None
    assert (made.user.passkeys, made.user.has_totp) == (1, False)
    for _ in range(2):
        visit, options = await ask(office)
        session, _ = await office.logins.check_passkey(visit, stick.sign(options), PLACE)
        assert session.user is not None
        assert (session.user.name, session.method) == ("root", "passkey")


async def test_the_browser_is_asked_for_a_resident_key_and_a_verified_person(office: Office) -> None:
    visit, _ = await office.setups.open(await office.registry.links.invite(ALL, ROOT, "", ADA), PLACE)
    visit = await office.setups.choose(visit, "root", PASSWORD)
    _, options = await office.setups.offer_passkey(visit, PLACE)
    wanted = json.loads(options)
    assert wanted["authenticatorSelection"]["residentKey"] == "required"
    assert wanted["authenticatorSelection"]["userVerification"] == "required"
    assert wanted["rp"]["id"] == "mail.example"
    _, options = await ask(office)
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
    office: Office, stick: Authenticator, cheat: dict[str, object], changes: dict[str, str]
) -> None:
    await set_up(office, stick)
    for name, value in cheat.items():
        setattr(stick, name, value)
    visit, options = await ask(office)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, stick.sign(options, **changes), PLACE)


async def test_a_passkey_that_verifies_nobody_is_not_taken_at_setup(office: Office, stick: Authenticator) -> None:
    stick.flags = PRESENT
    with pytest.raises(LoginFailed):
        await set_up(office, stick)
    assert await office.registry.users.is_empty(ALL)


async def test_a_challenge_is_good_for_one_answer(office: Office, stick: Authenticator) -> None:
    await set_up(office, stick)
    visit, _ = office.registry.sessions.visit()
    visit, value, options = await office.logins.offer_passkey(visit, PLACE)
    assert value is not None
    wrong = Authenticator(credential=stick.credential)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, wrong.sign(options), PLACE)
    later = await office.registry.sessions.find(value)
    assert later is not None
    other, _ = await ask(office)
    for each in (visit, later, other):  # as it was, as it is now, and another's
        with pytest.raises(LoginFailed):
            await office.logins.check_passkey(each, stick.sign(options), PLACE)


async def test_a_counter_that_goes_back_tells_a_copy(office: Office, stick: Authenticator) -> None:
    await set_up(office, stick)
    stick.counter = 10
    visit, options = await ask(office)
    await office.logins.check_passkey(visit, stick.sign(options), PLACE)
    stick.counter = 5
    visit, options = await ask(office)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_passkey_that_does_not_count_is_good(office: Office) -> None:
    stick = Authenticator(counts=False)
    await set_up(office, stick)
    for _ in range(2):
        visit, options = await ask(office)
        await office.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_the_second_factor_of_one_person_is_not_anothers(office: Office, stick: Authenticator) -> None:
    await set_up(office, stick)
    await office.hire("other", ROOT)
    visit, _ = office.registry.sessions.visit()
    visit, _ = await office.logins.check_password(visit, "other", PASSWORD, PLACE)
    visit, _, options = await office.logins.offer_passkey(visit, PLACE)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_disabled_person_has_no_use_of_a_passkey(office: Office, stick: Authenticator) -> None:
    made = await set_up(office, stick)
    await office.hire("other", ROOT)
    assert made.user is not None
    await office.administration.disable(ALL, made.user.uid, ADA)
    visit, options = await ask(office)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, stick.sign(options), PLACE)


@pytest.mark.parametrize("answer", ["", "[]", "{}", "null", '"x"', '{"id": 1}', "x" * (MAX_ANSWER + 1)])
async def test_nonsense_is_refused(office: Office, answer: str) -> None:
    visit, _ = await ask(office)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, answer, PLACE)


async def test_a_person_has_several_passkeys_by_name_and_never_loses_the_last_factor(
    office: Office, stick: Authenticator
) -> None:
    session = await set_up(office, stick)
    account = Account(office.registry)
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
    visit, options = await ask(office)
    fresh, _ = await office.logins.check_passkey(visit, second.sign(options), PLACE)
    assert await account.remove_passkey(fresh, only.passkey_id, PLACE)
    visit, options = await ask(office)
    with pytest.raises(LoginFailed):
        await office.logins.check_passkey(visit, stick.sign(options), PLACE)


async def test_a_passkey_belongs_to_one_person(office: Office, stick: Authenticator) -> None:
    await set_up(office, stick)
    with pytest.raises(NameTaken):
        await set_up(office, stick, "thief")


async def test_an_address_has_no_passkeys(office: Office) -> None:
    visit, _ = office.registry.sessions.visit()
    for site in ("https://127.0.0.1:9081", "https://[::1]:9081", "https://[::1", "https://"):
        assert not ClientOrigin(site).takes_passkeys
        with pytest.raises(SchemaViolation):
            await office.logins.offer_passkey(visit, ClientOrigin(site))
