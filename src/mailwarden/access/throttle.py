"""How often logging in may be tried, by name and by address, counted in PostgreSQL for all abbys together.

Security: what strangers type is counted here. A wait is short and always ends: nobody can shut another out for good.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import cast

from msgspec import Struct

from mailwarden.database.pool import Database
from mailwarden.errors import RateLimited

PURGE = """
DELETE FROM login_attempts WHERE subject IN (
    SELECT subject FROM login_attempts WHERE last < now() - interval '2 hours' LIMIT 256 FOR UPDATE SKIP LOCKED
)
"""
# The wait that ends is the one of this attempt. One that came behind it, wrong or not known yet, keeps its own.
_GIVE_BACK = """
UPDATE login_attempts SET attempts = greatest(0, attempts - 1),
    blocked_until = CASE WHEN last = $2 THEN '-infinity' ELSE blocked_until END
WHERE subject = $1
"""
_PURGE_EVERY = 64


class Patience(Struct, frozen=True):
    """Attempts that are free, and the longest wait after them in seconds."""

    free: int
    longest: int


class Attempt(Struct, frozen=True):
    """An attempt that was counted, and when."""

    subject: str
    moment: datetime


# One guess a minute at a name is no use against twelve characters, and no lock-out for whoever owns it.
NAME = Patience(6, 60)
ADDRESS = Patience(30, 900)
CODE = Patience(6, 120)


class ThrottleStore:
    """All SQL about attempts; its rows belong to nobody."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = 0

    async def take(self, *attempts: tuple[str, Patience]) -> Sequence[Attempt]:
        """Count an attempt for each subject before it is made, or raise RateLimited with the seconds to wait."""
        taken = []
        async with self._database.connection() as connection:
            for subject, patience in attempts:
                async with connection.transaction():
                    seconds = await connection.fetchval(
                        "SELECT take_attempt($1, $2, $3)", subject, patience.free, patience.longest
                    )
                    moment = await connection.fetchval("SELECT last FROM login_attempts WHERE subject = $1", subject)
                taken.append(Attempt(subject, cast("datetime", moment)))
                if seconds:
                    assert isinstance(seconds, int)
                    raise RateLimited(f"Too many attempts; try again in {seconds} s.", retry_after=seconds)
            self._calls += 1
            if self._calls % _PURGE_EVERY == 0:
                await connection.execute(PURGE)
        return taken

    async def give_back(self, attempt: Attempt) -> None:
        """Take back one attempt, which was right; the wrong ones, before it and behind it, still count.

        A right password says nothing about the others that an address tries: who has one account here must not get
        more guesses at another by logging in.
        """
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, attempt.subject, attempt.moment)

    async def forget(self, *subjects: str) -> None:
        """Forget the attempts of a subject that turned out to be right."""
        async with self._database.connection() as connection:
            await connection.execute("DELETE FROM login_attempts WHERE subject = ANY ($1::text[])", list(subjects))


def name_subject(name: str) -> str:
    """Return how a name is counted, known or not: a digest, as people type passwords into the wrong field."""
    return "name:" + hashlib.sha256(name.strip().lower().encode("utf-8", "replace")).hexdigest()


def address_subject(address: str | None) -> str:
    """Return how an address is counted: IPv6 by the network that one customer gets."""
    try:
        source = ip_address(address or "")
    except ValueError:
        return "address:unknown"
    if isinstance(source, IPv6Address) and source.ipv4_mapped is None:
        return f"address:{ip_network((source, 64), strict=False)}"
    return f"address:{getattr(source, 'ipv4_mapped', None) or source}"
