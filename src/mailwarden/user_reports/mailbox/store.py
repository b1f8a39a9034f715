"""The state of polled report mailboxes in PostgreSQL: the lease of a poll, the next poll, and the last failure."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from mailwarden.database.pool import Database
from mailwarden.database.rows import read_optional
from mailwarden.model.scope import Scope

MAX_FAILURE = 500  # characters

# A mailbox that another guard polls, or that is not due, gives no row.
_CLAIM = """
INSERT INTO report_mailboxes AS known (name, holder, leased_until, next_poll) VALUES ($1, $2, $4, $3)
ON CONFLICT (name) DO UPDATE SET holder = $2, leased_until = $4
WHERE (known.leased_until IS NULL OR known.leased_until <= $3) AND known.next_poll <= $3
RETURNING name
"""
_FINISH = """
UPDATE report_mailboxes SET holder = NULL, leased_until = NULL, next_poll = $3, polled_at = $4, failure = $5,
    failing_since = CASE WHEN $5 = '' THEN NULL ELSE coalesce(failing_since, $4) END
WHERE name = $1 AND holder = $2
"""
_RELEASE = "UPDATE report_mailboxes SET holder = NULL, leased_until = NULL WHERE name = $1 AND holder = $2"
_FIND = "SELECT polled_at, failing_since, failure FROM report_mailboxes WHERE name = $1"


class PolledMailbox(Struct, frozen=True):
    """The latest poll of a mailbox, by any guard."""

    polled_at: datetime | None = None
    failing_since: datetime | None = None
    failure: str = ""


class MailboxStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, scope: Scope, name: str, holder: UUID, now: datetime, lease: timedelta) -> bool:
        """Lease a mailbox that is due; return False if it is not, or if another guard polls it."""
        assert scope.tenants is None  # the deployment polls the mailboxes
        async with self._database.connection() as connection:
            return await connection.fetchval(_CLAIM, name, holder, now, now + lease) is not None

    async def finish(
        self, scope: Scope, name: str, holder: UUID, *, now: datetime, next_poll: datetime, failure: str = ""
    ) -> None:
        """End the lease; store the failure, "" for none."""
        assert scope.tenants is None
        async with self._database.connection() as connection:
            await connection.execute(_FINISH, name, holder, next_poll, now, failure[:MAX_FAILURE])

    async def release(self, scope: Scope, name: str, holder: UUID) -> None:
        """End the lease of a poll that was broken off; the mailbox stays due."""
        assert scope.tenants is None
        async with self._database.connection() as connection:
            await connection.execute(_RELEASE, name, holder)

    async def find(self, scope: Scope, name: str) -> PolledMailbox | None:
        """Return the latest poll; None if no guard polled the mailbox yet."""
        assert scope.tenants is None
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND, name)
        if row is None:
            return None
        return PolledMailbox(
            polled_at=read_optional(row, "polled_at", datetime),
            failing_since=read_optional(row, "failing_since", datetime),
            failure=str(row["failure"]),
        )
