"""Passwords: what is refused, and that checking one costs the same for everybody."""

import pytest
from argon2 import PasswordHasher

from mailwarden.access.factors import MAX_WAITING, Passwords, check_password
from mailwarden.errors import Overloaded, UnsuitablePassword


@pytest.fixture
def passwords():
    quick = Passwords(rounds=1, memory=64)
    yield quick
    quick.close()


@pytest.mark.parametrize(
    "weak",
    ["", "elevenchars", "x" * 257, "password1234", "Password1234!", "aaaaaaaaaaaaaaa", "123456789012", "qwertyqwerty12",
     "mailwarden2026", "grace-grace-grace", "adminadminadmin"],
)  # fmt: skip
def test_common_passwords_are_rejected(weak: str) -> None:
    with pytest.raises(UnsuitablePassword):
        check_password(weak, "grace")


@pytest.mark.parametrize(
    "good", ["correct horse battery", "пароль из слов", "x7#Kq!9vLm2$", "password of my own choosing"]
)
def test_others_are_taken(good: str) -> None:
    assert check_password(good, "grace") == good


def test_letters_that_look_and_mean_the_same_are_the_same() -> None:
    assert check_password("ﬁve horses battery") == "five horses battery"


async def test_a_password_matches_its_own_hash_alone(passwords: Passwords) -> None:
    stored = await passwords.hash("correct horse battery")
    assert stored.startswith("$argon2id$")
    assert await passwords.matches(stored, "correct horse battery")
    for wrong in ("correct horse batterx", "", "x" * 10_000):
        assert not await passwords.matches(stored, wrong)
    assert not await passwords.matches(None, "nobody has this password")
    assert not await passwords.matches("not a hash", "correct horse battery")


async def test_an_unknown_name_costs_the_same_work(passwords: Passwords, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    verify = PasswordHasher.verify

    def watched(hasher: PasswordHasher, stored: str, password: str) -> bool:
        hashes.append(stored.rsplit("$", 2)[0])
        return verify(hasher, stored, password)

    monkeypatch.setattr(PasswordHasher, "verify", watched)
    stored = await passwords.hash("correct horse battery")
    for kept in (stored, None):
        await passwords.matches(kept, "wrong horse battery")
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]


async def test_hashes_of_other_parameters_are_outdated(passwords: Passwords) -> None:
    other = Passwords(rounds=2, memory=64)
    assert not passwords.is_outdated(await passwords.hash("correct horse battery"))
    assert passwords.is_outdated(await other.hash("correct horse battery"))
    other.close()


async def test_only_so_many_wait(passwords: Passwords) -> None:
    passwords._waiting = MAX_WAITING
    with pytest.raises(Overloaded):
        await passwords.hash("correct horse battery")
