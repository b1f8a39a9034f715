"""Passwords, codes and sessions in a real PostgreSQL: what lets a person in, for how long, how often one may try."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mailwarden.access import sessions
from mailwarden.access.accounts import Account
from mailwarden.access.factors import Passwords
from mailwarden.access.login import CONSOLE_SEAL, Logins, build_registry
from mailwarden.access.rate_limits import PER_ADDRESS, PER_NAME, AttemptLimit, ThrottleStore
from mailwarden.access.session_store import SessionStore
from mailwarden.access.sessions import Notes, SessionLimits, Sessions
from mailwarden.access.users import Position, Role
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.database.pool import Database
from mailwarden.errors import LoginFailed, RateLimited
from tests.samples.accounts import ADA, ALL, PASSWORD, PEPPER, PLACE, Accounts

ROOT = Position(Role.DEPLOYMENT_ADMINISTRATOR)


@pytest.fixture
async def accounts(database_url: str) -> AsyncIterator[Accounts]:
    database = Database(database_url)
    accounts = Accounts(database)
    yield accounts
    accounts.registry.passwords.close()
    await database.close()


async def execute(accounts: Accounts, statement: str) -> None:
    async with accounts.database.connection() as connection:
        await connection.execute(statement)


async def test_login_ignores_the_case_of_the_name(accounts: Accounts) -> None:
    await accounts.create_user("Ada", ROOT)
    session, value = await accounts.log_in("Ada")
    assert session.user is not None
    assert session.user.name == "Ada"
    found = await accounts.registry.sessions.find(value)
    assert found is not None
    assert (found.user is not None, found.address, found.agent) == (True, "192.0.2.7", "Testfox 1.0")
    visit, _ = accounts.registry.sessions.visit()
    await accounts.logins.check_password(visit, " aDA ", PASSWORD, PLACE)


async def test_a_step_is_accepted_once_even_by_two_at_once(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    accounts.clock.pass_steps()
    visits = []
    for _ in range(2):
        visit, _ = accounts.registry.sessions.visit()
        visits.append((await accounts.logins.check_password(visit, "ada", PASSWORD, PLACE))[0])
    code = accounts.code("ada")
    tries = [accounts.logins.check_code(visit, code, PLACE) for visit in visits]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["LoginFailed", "tuple"]


async def test_codes_of_the_step_before_and_after_are_good_and_no_others(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    accounts.clock.pass_steps(10)
    for late, good in ((-3, False), (2, False), (1, True)):
        visit, _ = accounts.registry.sessions.visit()
        visit, _ = await accounts.logins.check_password(visit, "ada", PASSWORD, PLACE)
        accounts.clock.pass_steps(late)
        code = accounts.code("ada")
        accounts.clock.pass_steps(-late)
        if good:
            await accounts.logins.check_code(visit, code, PLACE)
        else:
            with pytest.raises(LoginFailed):
                await accounts.logins.check_code(visit, code, PLACE)


async def test_a_code_without_a_password_is_nothing(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    accounts.clock.pass_steps()
    visit, _ = accounts.registry.sessions.visit()
    with pytest.raises(LoginFailed):
        await accounts.logins.check_code(visit, accounts.code("ada"), PLACE)


async def test_an_outdated_password_hash_is_replaced_at_login(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    _, before = await accounts.registry.users.find_name(ALL, "ada") or (None, None)
    later = build_registry(accounts.database, PEPPER, passwords=Passwords(rounds=2, memory=64), now=accounts.clock)
    visit, _ = later.sessions.visit()
    await Logins(later).check_password(visit, "ada", PASSWORD, PLACE)
    _, after = await later.users.find_name(ALL, "ada") or (None, None)
    assert before is not None
    assert after is not None
    assert before != after
    assert "t=2" in after
    assert await later.passwords.matches(after, PASSWORD)
    later.passwords.close()


async def test_nothing_that_lets_in_is_stored_as_it_is(accounts: Accounts) -> None:
    session, value = await accounts.accept(await accounts.registry.links.create_first(ALL, ADA), "ada")
    codes = session.notes.shown["codes"].split()
    async with accounts.database.connection() as connection:
        tables = ("users", "sessions", "setup_links", "recovery_codes", "audit", "login_attempts")
        rows = [str(await connection.fetchval(f"SELECT string_agg(t::text, '|') FROM {table} t")) for table in tables]
    stored = " ".join(rows)
    for secret in (PASSWORD, value, accounts.secrets["ada"], *codes):
        assert secret not in stored
        assert secret.encode().hex() not in stored


async def test_a_session_ends_when_it_is_idle_and_when_its_time_is_over(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    _, value = await accounts.log_in("ada")
    await execute(accounts, "UPDATE sessions SET last_seen = now() - interval '29 minutes'")
    assert await accounts.registry.sessions.find(value) is not None
    _, idle = await accounts.log_in("ada")
    await execute(accounts, "UPDATE sessions SET last_seen = now() - interval '31 minutes'")
    assert await accounts.registry.sessions.find(idle) is None
    _, over = await accounts.log_in("ada")
    await execute(accounts, "UPDATE sessions SET expires = now()")
    assert await accounts.registry.sessions.find(over) is None


async def test_the_last_use_is_written_once_a_minute(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    _, value = await accounts.log_in("ada")
    sessions = accounts.registry.sessions
    first = await sessions.find(value)
    again = await sessions.find(value)
    assert first is not None
    assert again is not None
    assert first.last_seen == again.last_seen
    await execute(accounts, "UPDATE sessions SET last_seen = now() - interval '61 seconds'")
    await sessions.find(value)
    touched = await sessions.find(value)
    assert touched is not None
    assert touched.last_seen > first.last_seen


async def test_a_secret_is_shown_to_one_of_two_requests(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    session, value = await accounts.log_in("ada")
    await accounts.registry.sessions.show_next(session, {"key": "secret"})
    found = [await accounts.registry.sessions.find(value) for _ in range(2)]
    shown = await asyncio.gather(
        *(accounts.registry.sessions.take_shown(each, "key") for each in found if each is not None)
    )
    assert sorted(map(len, shown)) == [0, 1]


async def test_notes_of_one_session_are_not_anothers(accounts: Accounts) -> None:
    one, _ = await accounts.registry.sessions.link_visit(PLACE, Notes(name="one"))
    two, value = await accounts.registry.sessions.link_visit(PLACE, Notes(name="two"))
    async with accounts.database.connection() as connection:
        await connection.execute("UPDATE sessions SET notes = $1 WHERE digest = $2", one.sealed, two.digest)
    found = await accounts.registry.sessions.find(value)
    assert found is not None
    assert found.notes == Notes()
    ring = KeyRing.of(b"q" * 32)
    other = Sessions(SessionStore(accounts.database), Seal(ring, CONSOLE_SEAL), ring, SessionLimits())
    assert await other.find(value) is None


async def test_a_visit_is_in_its_cookie_alone_until_it_ends(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit, value = accounts.registry.sessions.visit(Notes(goal="/console/lists"))
    found = await accounts.registry.sessions.find(value)
    assert found == visit
    assert not visit.stored
    noted, changed = await accounts.registry.sessions.note(visit, Notes(goal="/console/"))
    assert changed is not None
    assert await accounts.registry.sessions.find(changed) == noted
    assert noted.csrf == visit.csrf
    assert await accounts.registry.sessions.find(value[:-1] + ("A" if value[-1] != "A" else "B")) is None
    monkeypatch.setattr(sessions, "VISIT_SECONDS", -1.0)
    assert await accounts.registry.sessions.find(accounts.registry.sessions.visit()[1]) is None
    async with accounts.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM sessions") == 0


async def test_session_data_is_used_once(accounts: Accounts) -> None:
    visit, _ = accounts.registry.sessions.visit()
    done = await asyncio.gather(*(accounts.registry.sessions.spend(visit) for _ in range(5)))
    assert sorted(done) == [False] * 4 + [True]


async def test_stored_visits_of_one_address_stay_few(accounts: Accounts) -> None:
    for _ in range(205):
        await accounts.registry.sessions.link_visit(PLACE, Notes())
    async with accounts.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM sessions") == 200


async def test_attempts_are_counted_before_they_are_made(accounts: Accounts) -> None:
    throttle = ThrottleStore(accounts.database)
    tries = [throttle.take(("name:x", PER_NAME)) for _ in range(50)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    refused = [each for each in done if isinstance(each, BaseException)]
    assert len(done) - len(refused) == PER_NAME.free
    assert all(isinstance(each, RateLimited) and (each.retry_after or 0) >= 1 for each in refused)


async def test_a_wait_doubles_up_to_its_limit_ends_and_is_forgotten(accounts: Accounts) -> None:
    throttle, patience = ThrottleStore(accounts.database), AttemptLimit(1, 4)
    waits = []
    for _ in range(5):
        await throttle.take(("name:y", patience))
        with pytest.raises(RateLimited) as caught:
            await throttle.take(("name:y", patience))
        waits.append(caught.value.retry_after)
        await execute(accounts, "UPDATE login_attempts SET blocked_until = now()")
    assert waits == [1, 2, 4, 4, 4]
    await execute(accounts, "UPDATE login_attempts SET last = now() - interval '61 minutes'")
    await throttle.take(("name:y", patience))
    with pytest.raises(RateLimited) as caught:
        await throttle.take(("name:y", patience))
    assert caught.value.retry_after == 1
    await throttle.forget("name:y")
    await throttle.take(("name:y", patience))


async def test_guesses_at_many_names_from_one_address_are_slowed_down(accounts: Accounts) -> None:
    outcomes = []
    for number in range(PER_ADDRESS.free + 2):
        visit, _ = accounts.registry.sessions.visit()
        with pytest.raises((LoginFailed, RateLimited)) as caught:
            await accounts.logins.check_password(visit, f"name{number}", PASSWORD, PLACE)
        outcomes.append(caught.type)
    assert outcomes[0] is LoginFailed
    assert outcomes[-1] is RateLimited


async def test_a_right_password_does_not_wash_an_address_clean(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    for number in range(10):
        visit, _ = accounts.registry.sessions.visit()
        with pytest.raises(LoginFailed):
            await accounts.logins.check_password(visit, f"name{number}", PASSWORD, PLACE)
    await accounts.log_in("ada")
    async with accounts.database.connection() as connection:
        query = "SELECT attempts FROM login_attempts WHERE subject LIKE 'address:%'"
        assert await connection.fetchval(query) == 10


async def test_a_right_password_ends_no_wait_that_others_of_its_address_caused(accounts: Accounts) -> None:
    throttle, patience = ThrottleStore(accounts.database), AttemptLimit(3, 900)
    own = [(await throttle.take(("address:x", patience)))[0] for _ in range(2)]  # logins that are under way
    await throttle.take(("address:x", patience))  # a wrong guess, behind which a wait begins
    with pytest.raises(RateLimited):
        await throttle.take(("address:x", patience))
    for attempt in own:
        await throttle.give_back(attempt)
        with pytest.raises(RateLimited):
            await throttle.take(("address:x", patience))


async def test_a_right_password_leaves_no_wait_of_its_own(accounts: Accounts) -> None:
    throttle, patience = ThrottleStore(accounts.database), AttemptLimit(1, 900)
    for _ in range(3):
        (attempt,) = await throttle.take(("address:y", patience))
        await throttle.give_back(attempt)


async def test_a_login_clears_the_failures_of_its_own_name_alone(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    await accounts.create_user("bob", ROOT)
    for name in ("ada", "bob", "bob"):
        visit, _ = accounts.registry.sessions.visit()
        with pytest.raises(LoginFailed):
            await accounts.logins.check_password(visit, name, "wrong horse battery", PLACE)
    await accounts.log_in("ada")
    async with accounts.database.connection() as connection:
        query = "SELECT split_part(subject, ':', 1) AS kind, attempts FROM login_attempts WHERE attempts > 0"
        rows = {str(row["kind"]): row["attempts"] for row in await connection.fetch(query)}
    assert rows == {"name": 2, "address": 3}


async def test_an_account_asks_for_the_password_before_it_changes_a_factor(accounts: Accounts) -> None:
    await accounts.create_user("ada", ROOT)
    session, value = await accounts.log_in("ada")
    account = Account(accounts.registry)
    for change in (account.propose_totp(session, "no"), account.renew_recovery_codes(session, "no", PLACE)):
        with pytest.raises(LoginFailed):
            await change
    session = await account.propose_totp(session, PASSWORD)
    old, accounts.secrets["ada"] = accounts.secrets["ada"], session.notes.totp
    accounts.clock.pass_steps()
    await account.prove_totp(session, accounts.code("ada"), PLACE)
    await accounts.log_in("ada")
    accounts.secrets["ada"] = old
    with pytest.raises(LoginFailed):
        await accounts.log_in("ada")
    assert await account.recovery_codes_left(session) == 10
    assert value
