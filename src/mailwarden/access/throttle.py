"""How often logging in may be tried, by name and by address, counted in PostgreSQL for all abbys together.

Security: what strangers type is counted here. A wait is short and always ends: nobody can shut another out for good.
"""

import hashlib
from ipaddress import IPv6Address, ip_address, ip_network

from msgspec import Struct

from mailwarden.database.pool import Database
from mailwarden.errors import RateLimited

PURGE = """
DELETE FROM login_attempts WHERE subject IN (
    SELECT subject FROM login_attempts WHERE last < now() - interval '2 hours' LIMIT 256 FOR UPDATE SKIP LOCKED
)
"""
_GIVE_BACK = """
UPDATE login_attempts SET attempts = greatest(0, attempts - 1), blocked_until = '-infinity' WHERE subject = $1
"""
_PURGE_EVERY = 64


class Patience(Struct, frozen=True):
    """Attempts that are free, and the longest wait after them in seconds."""

    free: int
    longest: int


# One guess a minute at a name is no use against twelve characters, and no lock-out for whoever owns it.
NAME = Patience(6, 60)
ADDRESS = Patience(30, 900)
CODE = Patience(6, 120)


class ThrottleStore:
    """All SQL about attempts; its rows belong to nobody."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = 0

    async def take(self, *attempts: tuple[str, Patience]) -> None:
        """Count an attempt for each subject before it is made, or raise RateLimited with the seconds to wait."""
        async with self._database.connection() as connection:
            for subject, patience in attempts:
                seconds = await connection.fetchval(
                    "SELECT take_attempt($1, $2, $3)", subject, patience.free, patience.longest
                )
                if seconds:
                    assert isinstance(seconds, int)
                    raise RateLimited(f"Too many attempts; try again in {seconds} s.", retry_after=seconds)
            self._calls += 1
            if self._calls % _PURGE_EVERY == 0:
                await connection.execute(PURGE)

    async def give_back(self, subject: str) -> None:
        """Take back the attempt that was just made, which was right; the wrong ones before it still count."""
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, subject)

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
