"""Rate limits of calls, per process or shared by all abby processes through PostgreSQL, and limits of login attempts.

A process leases calls in batches, a sixteenth of those that are left, and counts them down in memory: most calls cost
no query, and a key that has used up its limit costs none until its window ends. Leased calls count as made, so that all
processes together never accept more than the limit in a window. A key whose calls move from one process to another may
get up to a sixteenth fewer for each process that it left.

While PostgreSQL does not answer, each process accepts up to the limit by itself.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import cast

from msgspec import Struct

from mailwarden.database.pool import Database
from mailwarden.errors import RateLimited, StorageUnavailable
from mailwarden.telemetry.logs import get_logger

WINDOW_SECONDS = 60.0
MAX_WINDOWS = 10_000
LEASE_SECONDS = 0.5  # the longest wait for a lease
BATCHES = 16  # a lease is this part of the calls that are left
_PURGE_LEASES_EVERY = 1_024

# $2 is the limit and $4 the number of batches.
_LEASE = """
INSERT INTO rate_windows AS old (subject, ends, taken, granted)
VALUES ($1, now() + $3::float * interval '1 second', greatest(1, $2::int / $4::int), greatest(1, $2::int / $4::int))
ON CONFLICT (subject) DO UPDATE SET
    ends = CASE WHEN old.ends <= now() THEN excluded.ends ELSE old.ends END,
    taken = CASE WHEN old.ends <= now() THEN excluded.taken
        ELSE old.taken + least(greatest(0, $2 - old.taken), greatest(1, ($2 - old.taken) / $4)) END,
    granted = CASE WHEN old.ends <= now() THEN excluded.taken
        ELSE least(greatest(0, $2 - old.taken), greatest(1, ($2 - old.taken) / $4)) END
RETURNING granted, taken, extract(epoch FROM ends - now())::float AS seconds
"""
_PURGE_LEASES = "DELETE FROM rate_windows WHERE ends < now() - interval '1 hour'"

log = get_logger(__name__)

PURGE_ATTEMPTS = """
DELETE FROM login_attempts WHERE subject IN (
    SELECT subject FROM login_attempts WHERE last < now() - interval '2 hours' LIMIT 256 FOR UPDATE SKIP LOCKED
)
"""
# Only the wait of this attempt ends. A later attempt keeps its own.
_GIVE_BACK = """
UPDATE login_attempts SET attempts = greatest(0, attempts - 1),
    blocked_until = CASE WHEN last = $2 THEN '-infinity' ELSE blocked_until END
WHERE subject = $1
"""
_PURGE_ATTEMPTS_EVERY = 64


@dataclass(frozen=True, slots=True)
class Quota:
    """The calls that are left after one call; `remaining` is below zero for a call beyond the limit."""

    limit: int
    remaining: int
    seconds: int  # until the whole limit is there again

    @property
    def exceeded(self) -> bool:
        return self.remaining < 0

    @property
    def headers(self) -> Mapping[str, str]:
        return {
            "RateLimit-Policy": f'"key";q={self.limit};w={WINDOW_SECONDS:.0f}',
            "RateLimit": f'"key";r={max(self.remaining, 0)};t={self.seconds}',
        }


class RateLimiter:
    """Counts calls in windows of one minute in this process, without a query."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def count(self, subject: str) -> Quota:
        """Count a call; calls beyond the limit count as well."""
        now = self._clock()
        end, calls = self._windows.get(subject, (0.0, 0))
        if now >= end:
            self._forget_ended(now)
            end, calls = now + WINDOW_SECONDS, 0
        self._windows[subject] = (end, calls + 1)
        return Quota(self._limit, self._limit - calls - 1, max(1, math.ceil(end - now)))

    def _forget_ended(self, now: float) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            self._windows = {subject: window for subject, window in self._windows.items() if now < window[0]}


class Lease(Struct, frozen=True):
    """A batch of calls for one process."""

    granted: int  # 0: the limit is used up
    taken: int  # by all processes in this window, this batch included
    seconds: float  # until the window ends


class LeaseStore:
    """All SQL about rate limits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leases = 0

    async def lease(self, subject: str, limit: int) -> Lease:
        """Take a batch of the subject's calls, in one statement."""
        self._leases += 1
        async with self._database.connection(LEASE_SECONDS) as connection:
            row = await connection.fetchrow(_LEASE, subject, limit, WINDOW_SECONDS, BATCHES)
            if self._leases % _PURGE_LEASES_EVERY == 0:
                await connection.execute(_PURGE_LEASES)
        assert row is not None
        granted, taken, seconds = row["granted"], row["taken"], row["seconds"]
        assert isinstance(granted, int)
        assert isinstance(taken, int)
        assert isinstance(seconds, float)
        return Lease(granted, taken, seconds)


@dataclass(slots=True)
class _Window:
    """A subject's calls in this process."""

    end: float = 0.0
    left: int = 0  # of those leased
    beyond: int = 0  # calls that no process had leased at this process's last lease
    used: int = 0  # by this process in this window
    leasing: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedRateLimiter:
    """Counts calls in windows of one minute over all processes that share a database; `limit` may change."""

    def __init__(self, limit: int, store: LeaseStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._store = store
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    async def count(self, subject: str) -> Quota:
        """Count a call of an authenticated caller."""
        window = self._windows.get(subject)
        if window is None:
            self._forget_ended()
            window = self._windows.setdefault(subject, _Window())
        while not self._settled(window):
            async with window.leasing:
                if not self._settled(window):  # a call that waited for the same lock may have leased
                    await self._lease(subject, window)
        seconds = max(1, math.ceil(window.end - self._clock()))
        if not window.left:
            return Quota(self.limit, -1, seconds)
        window.left -= 1
        window.used += 1
        return Quota(self.limit, window.beyond + window.left, seconds)

    def _settled(self, window: _Window) -> bool:
        """Return whether no lease is needed: calls are left, or none are until the window ends."""
        return self._clock() < window.end and (window.left > 0 or window.beyond == 0)

    async def _lease(self, subject: str, window: _Window) -> None:
        try:
            async with asyncio.timeout(LEASE_SECONDS):
                lease = await self._store.lease(subject, self.limit)
        except (StorageUnavailable, TimeoutError) as error:
            log.warning("rate_limit_counted_locally", reason=type(error).__name__)
            now = self._clock()
            if now >= window.end:
                window.end, window.used = now + WINDOW_SECONDS, 0
            window.left, window.beyond = max(0, self.limit - window.used), 0
            return
        end = self._clock() + lease.seconds
        if self._clock() >= window.end:
            window.used = 0
        window.end, window.left, window.beyond = end, lease.granted, max(0, self.limit - lease.taken)

    def _forget_ended(self) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            now = self._clock()
            self._windows = {
                subject: window
                for subject, window in self._windows.items()
                if now < window.end or window.leasing.locked()
            }


class AttemptLimit(Struct, frozen=True):
    """The number of free attempts, and the longest wait after them in seconds."""

    free: int
    longest: int


class Attempt(Struct, frozen=True):
    """A counted attempt and its time."""

    subject: str
    moment: datetime


# One guess a minute does not break twelve characters, and does not lock out the owner of the name.
PER_NAME = AttemptLimit(6, 60)
PER_ADDRESS = AttemptLimit(30, 900)
PER_CODE = AttemptLimit(6, 120)


class ThrottleStore:
    """All SQL about attempts; the rows belong to no tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = 0

    async def take(self, *attempts: tuple[str, AttemptLimit]) -> Sequence[Attempt]:
        """Count an attempt for each subject before it is made, or raise RateLimited with the seconds to wait."""
        taken = []
        async with self._database.connection() as connection:
            for subject, limit in attempts:
                async with connection.transaction():
                    seconds = await connection.fetchval(
                        "SELECT take_attempt($1, $2, $3)", subject, limit.free, limit.longest
                    )
                    moment = await connection.fetchval("SELECT last FROM login_attempts WHERE subject = $1", subject)
                taken.append(Attempt(subject, cast("datetime", moment)))
                if seconds:
                    assert isinstance(seconds, int)
                    raise RateLimited(f"Too many attempts; try again in {seconds} s.", retry_after=seconds)
            self._calls += 1
            if self._calls % _PURGE_ATTEMPTS_EVERY == 0:
                await connection.execute(PURGE_ATTEMPTS)
        return taken

    async def give_back(self, attempt: Attempt) -> None:
        """Remove one successful attempt; failed attempts before and after it still count.

        The owner of one account must not get more guesses at other accounts by logging in.
        """
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, attempt.subject, attempt.moment)

    async def forget(self, *subjects: str) -> None:
        """Delete the attempts of subjects after a success."""
        async with self._database.connection() as connection:
            await connection.execute("DELETE FROM login_attempts WHERE subject = ANY ($1::text[])", list(subjects))


def name_subject(name: str) -> str:
    """Return the subject of a login name: a digest, because users type passwords into the wrong field."""
    return "name:" + hashlib.sha256(name.strip().lower().encode("utf-8", "replace")).hexdigest()


def address_subject(address: str | None) -> str:
    """Return the subject of a client address; IPv6 counts by its /64 network."""
    try:
        source = ip_address(address or "")
    except ValueError:
        return "address:unknown"
    if isinstance(source, IPv6Address) and source.ipv4_mapped is None:
        return f"address:{ip_network((source, 64), strict=False)}"
    return f"address:{getattr(source, 'ipv4_mapped', None) or source}"
