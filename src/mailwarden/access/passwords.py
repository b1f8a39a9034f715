"""Passwords: argon2id hashes, computed in a few threads, with the same work for known and unknown names.

Security: secrets pass through here. None is logged or stored. A hash takes 64 MiB, so the number of
concurrent and waiting hashes is limited.
"""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from mailwarden.errors import Overloaded, UnsuitablePassword

T = TypeVar("T")

MIN_LENGTH = 12
MAX_LENGTH = 256
THREADS = 2
MAX_WAITING = 32

# Common passwords. The attempt limit and the second factor protect all others.
_OBVIOUS = (
    "password", "passwort", "qwerty", "qwertz", "azerty", "asdfgh", "letmein", "welcome", "administrator", "admin",
    "mailwarden", "changeme", "iloveyou", "secret", "abcdefghijklmnopqrstuvwxyz", "01234567890123456789",
)  # fmt: skip


def check_password(password: str, name: str = "") -> str:
    """Return the normalised password, or raise UnsuitablePassword with the reason."""
    normal = unicodedata.normalize("NFKC", password)
    if not MIN_LENGTH <= len(normal) <= MAX_LENGTH or len(password) > MAX_LENGTH:
        raise UnsuitablePassword(f"A password has {MIN_LENGTH} to {MAX_LENGTH} characters.")
    rest = normal.lower()
    for word in (*_OBVIOUS, name.lower()):
        rest = rest.replace(word, "") if word else rest
    # `Password1234!` is rejected: without common words, digits and punctuation too little is left.
    if len(set(normal)) < 5 or len([letter for letter in rest if letter.isalpha()]) < 3:
        raise UnsuitablePassword("This password is too common. Use a few unrelated words.")
    return normal


class Passwords:
    """Creates and checks hashes; `rounds` and `memory` are argon2's time cost and KiB."""

    def __init__(self, *, rounds: int = 3, memory: int = 65_536) -> None:
        self._hasher = PasswordHasher(time_cost=rounds, memory_cost=memory, parallelism=1)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="password")
        self._waiting = 0
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(unicodedata.normalize("NFKC", password)))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Return whether the password matches; without a hash the same work is done."""
        if self._dummy is None:
            self._dummy = await self.hash("a password of no user")
        dummy = self._dummy
        if len(password) > MAX_LENGTH:
            password = ""

        def verify() -> bool:
            try:
                matched = self._hasher.verify(stored or dummy, unicodedata.normalize("NFKC", password))
            except (VerificationError, InvalidHashError):
                return False
            return matched and stored is not None

        return await self._run(verify)

    def is_outdated(self, stored: str) -> bool:
        """Return whether the hash has outdated parameters."""
        return self._hasher.check_needs_rehash(stored)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Overloaded("Too many people log in just now; try again.", retry_after=2)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1
