"""The weekly report in PostgreSQL: the actions of users in a week, the recipients, and the mails that are due.

A guard claims the mail of a tenant and week for some minutes, and notes each recipient before it sends. A recipient is
removed again only if the next hop did not accept the mail. So no recipient gets a report twice, and a guard that dies
leaves at most one recipient without it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.access.users import USER_COLUMNS, User, user_of
from mailwarden.database.clock import read_now
from mailwarden.database.pool import EVERYTHING, Connection, Database, scoped
from mailwarden.database.queue import MAX_ATTEMPTS, next_attempt
from mailwarden.database.rows import read
from mailwarden.errors import SchemaViolation, TenantNotFound
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.weekly_report.model import Actions, Week

SECONDS = 2  # for the figures of one week
MAX_RECIPIENTS = 50
CLAIM = timedelta(minutes=10)  # in which no other guard takes the same mail
DANGEROUS = (Verdict.PHISHING, Verdict.FRAUD, Verdict.MALWARE)

_HELD = "SELECT count(*) FROM quarantine WHERE tenant = $1 AND received >= $2 AND received < $3"
_AUDIT = "FROM audit WHERE tenant = $1 AND moment >= $2 AND moment < $3"
# A message counts once, however many recipients it was released to.
_EVENTS = f"""
SELECT count(DISTINCT details ->> 'uid') FILTER (WHERE action = 'quarantine.released') AS released,
       count(DISTINCT details ->> 'uid') FILTER (WHERE action = 'quarantine.delete') AS deleted,
       count(*) FILTER (WHERE action LIKE 'lists.%' AND action <> 'lists.expire') AS changes
{_AUDIT}
"""
_DANGEROUS = f"""
SELECT count(*) FROM quarantine WHERE tenant = $1 AND verdict = ANY ($4::text[]) AND uid = ANY (
    ARRAY(SELECT (details ->> 'uid')::uuid {_AUDIT} AND action = 'quarantine.released')
)
"""  # noqa: S608 -- one constant
_REPORTED = """
SELECT kind, count(*) AS messages FROM training_reports
WHERE tenant = $1 AND reported_at >= $2 AND reported_at < $3 GROUP BY kind
"""

_SETTINGS = "SELECT enabled_since, recipients FROM weekly_reports WHERE tenant = $1"
_LOCK_TENANT = "SELECT name FROM tenants WHERE uid = $1 FOR UPDATE"
_SAVE = """
INSERT INTO weekly_reports (tenant, enabled_since, recipients) VALUES ($1, CASE WHEN $2 THEN now() END, $3)
ON CONFLICT (tenant) DO UPDATE SET recipients = excluded.recipients,
    enabled_since = CASE WHEN $2 THEN coalesce(weekly_reports.enabled_since, now()) END
"""
# The users of a tenant with an address: a user of the whole deployment belongs to no tenant.
_USERS = f"""
SELECT {USER_COLUMNS} FROM users
WHERE $1 = ANY (tenants) AND disabled IS NULL AND email <> '' AND ($2::uuid[] IS NULL OR tenants <@ $2)
ORDER BY lower(name) LIMIT 1000
"""  # noqa: S608 -- one constant

_DUE = """
INSERT INTO weekly_report_mails (tenant, week, next_attempt) SELECT tenant, $2, $3 FROM weekly_reports
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND enabled_since < $4 AND cardinality(recipients) > 0
ON CONFLICT DO NOTHING
"""
_CLAIM = """
WITH next AS (
    SELECT mails.tenant, mails.week FROM weekly_report_mails AS mails JOIN weekly_reports USING (tenant)
    WHERE ($1::uuid[] IS NULL OR mails.tenant = ANY ($1)) AND week = $2 AND finished IS NULL AND next_attempt <= $3
      AND attempts < $4 AND enabled_since IS NOT NULL
    ORDER BY next_attempt, mails.tenant LIMIT 1 FOR UPDATE OF mails SKIP LOCKED
)
UPDATE weekly_report_mails AS those SET attempts = attempts + 1, next_attempt = $5 FROM next
WHERE those.tenant = next.tenant AND those.week = next.week RETURNING those.tenant, those.attempts, those.tried
"""
_RECIPIENTS = f"""
SELECT {USER_COLUMNS} FROM users JOIN weekly_reports ON users.uid = ANY (recipients)
WHERE weekly_reports.tenant = $1 AND enabled_since IS NOT NULL AND $1 = ANY (tenants)
  AND disabled IS NULL AND email <> ''
ORDER BY lower(name)
"""  # noqa: S608 -- one constant
_TRY = """
UPDATE weekly_report_mails SET tried = array_append(tried, $3)
WHERE tenant = $1 AND week = $2 AND NOT $3 = ANY (tried) RETURNING true
"""
_GIVE_BACK = "UPDATE weekly_report_mails SET tried = array_remove(tried, $3) WHERE tenant = $1 AND week = $2"
_SENT = "UPDATE weekly_report_mails SET sent = sent + 1 WHERE tenant = $1 AND week = $2"
_FINISH = "UPDATE weekly_report_mails SET finished = $3, failure = $4 WHERE tenant = $1 AND week = $2 RETURNING sent"
_RETRY = "UPDATE weekly_report_mails SET next_attempt = $3, failure = $4 WHERE tenant = $1 AND week = $2"
_STATE = "SELECT attempts, sent, failure, finished FROM weekly_report_mails WHERE tenant = $1 AND week = $2"
_FORGET = "DELETE FROM weekly_report_mails WHERE week < $2 AND ($1::uuid[] IS NULL OR tenant = ANY ($1))"
SYSTEM = Actor("system")


class Subscription(Struct, frozen=True):
    """The weekly email of a tenant: whether it is on, and the users who receive it."""

    enabled: bool = False
    recipients: frozenset[UUID] = frozenset()


class MailState(Struct, frozen=True):
    """How far the mail of a week is; `failure` is the last reply of the next hop."""

    attempts: int
    sent: int
    failure: str
    finished: bool


class MailJob(Struct, frozen=True):
    """The mail of one tenant and week, claimed by one guard; `tried` has the users that need no further attempt."""

    tenant: UUID
    week: Week
    attempt: int
    tried: frozenset[UUID] = frozenset()

    @property
    def is_last(self) -> bool:
        return self.attempt >= MAX_ATTEMPTS


class ActionsStore:
    """Counts the actions of users in a week, within a time limit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, scope: Scope, tenant: UUID, week: Week) -> Actions:
        """Return the figures of the week; those that could not be counted in time are None."""
        _require(scope, tenant)
        given = (tenant, week.begin, week.end)
        first = f"SET LOCAL statement_timeout = '{SECONDS}s'"
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            try:
                held = cast("int", await connection.fetchval(_HELD, *given))
                events = await connection.fetchrow(_EVENTS, *given)
                dangerous = cast("int", await connection.fetchval(_DANGEROUS, *given, list(DANGEROUS)))
                reports = await connection.fetch(_REPORTED, *given)
            except asyncpg.QueryCanceledError:
                return Actions()
        assert events is not None
        return Actions(
            held=held,
            released=read(events, "released", int),
            released_dangerous=dangerous,
            deleted=read(events, "deleted", int),
            reported={str(row["kind"]): read(row, "messages", int) for row in reports},
            list_changes=read(events, "changes", int),
        )


class SubscriptionStore:
    """Which tenants get the weekly report by email, and which of their users receive it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, scope: Scope, tenant: UUID) -> Subscription:
        _require(scope, tenant)
        async with self._database.connection() as connection:
            return await _subscription(connection, tenant)

    async def users(self, scope: Scope, tenant: UUID) -> Sequence[User]:
        """Return the users of the tenant who can receive the report, as far as the scope sees them."""
        _require(scope, tenant)
        async with self._database.connection() as connection:
            return [user_of(row) for row in await connection.fetch(_USERS, tenant, scope.uids())]

    async def save(
        self, scope: Scope, tenant: UUID, *, enabled: bool, recipients: frozenset[UUID], actor: Actor
    ) -> Subscription:
        """Switch the email on or off; recipients that the scope does not see stay as they are."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            name = await connection.fetchval(_LOCK_TENANT, tenant)
            if name is None:
                raise _no_tenant()
            before = await _subscription(connection, tenant)
            seen = {user_of(row).uid for row in await connection.fetch(_USERS, tenant, scope.uids())}
            able = {user_of(row).uid for row in await connection.fetch(_USERS, tenant, None)}
            if not recipients <= seen:
                raise SchemaViolation("A recipient of the report is no user of this tenant, or has no address.")
            wanted = recipients | ((before.recipients & able) - seen)
            if enabled and not wanted:
                raise SchemaViolation("Choose at least one user who receives the report.")
            if len(wanted) > MAX_RECIPIENTS:
                raise SchemaViolation(f"A weekly report has at most {MAX_RECIPIENTS} recipients.")
            await connection.execute(_SAVE, tenant, enabled, sorted(wanted))
            after = Subscription(enabled, frozenset(wanted))
            details = {"before": _shown(before), "after": _shown(after)}
            await record_event(connection, actor, "weekly-report.change", str(name), details, tenant=tenant)
        return after

    async def mail_state(self, scope: Scope, tenant: UUID, week: Week) -> MailState | None:
        """Return how far the mail of a week is, or None if none was due."""
        _require(scope, tenant)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_STATE, tenant, week.monday)
        if row is None:
            return None
        finished = row["finished"] is not None
        return MailState(read(row, "attempts", int), read(row, "sent", int), str(row["failure"]), finished)


class MailStore:
    """The mails of a week: one row for each tenant, and one guard at a time for each row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def prepare(self, scope: Scope, week: Week, hour: datetime, now: datetime) -> None:
        """Note the mails of a week, for tenants that had switched them on before `hour`; forget those of old weeks."""
        async with self._database.connection() as connection:
            await read_now(connection)  # raises if this host's clock is wrong
            await connection.execute(_DUE, scope.uids(), week.monday, now, hour)
            await connection.execute(_FORGET, scope.uids(), week.earlier(26).monday)

    async def claim(self, scope: Scope, week: Week, now: datetime) -> MailJob | None:
        """Claim a mail of the week that is due, or return None."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_CLAIM, scope.uids(), week.monday, now, MAX_ATTEMPTS, now + CLAIM)
        if row is None:
            return None
        tried = frozenset(cast("Sequence[UUID]", row["tried"]))
        return MailJob(read(row, "tenant", UUID), week, read(row, "attempts", int), tried)

    async def recipients(self, scope: Scope, job: MailJob) -> Sequence[User]:
        """Return the users to whom the mail must still be sent: of the tenant, not disabled, with an address."""
        _require(scope, job.tenant)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_RECIPIENTS, job.tenant)
        return [user for user in map(user_of, rows) if user.uid not in job.tried]

    async def begin(self, scope: Scope, job: MailJob, user: UUID) -> bool:
        """Note that the mail is being sent to a user; return False if another guard has done so."""
        _require(scope, job.tenant)
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_TRY, job.tenant, job.week.monday, user))

    async def give_back(self, scope: Scope, job: MailJob, user: UUID) -> None:
        """Allow another attempt for a user, because the next hop did not accept the mail."""
        _require(scope, job.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, job.tenant, job.week.monday, user)

    async def set_sent(self, scope: Scope, job: MailJob) -> None:
        _require(scope, job.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_SENT, job.tenant, job.week.monday)

    async def retry(self, scope: Scope, job: MailJob, now: datetime, failure: str) -> None:
        """Have the rest tried again later, each time after a longer pause."""
        _require(scope, job.tenant)
        due = next_attempt(now, job.attempt)
        async with self._database.connection() as connection:
            await connection.execute(_RETRY, job.tenant, job.week.monday, due, failure)

    async def finish(self, scope: Scope, job: MailJob, now: datetime, failure: str = "") -> None:
        """Note that no further attempt is made, and record it in the audit log."""
        _require(scope, job.tenant)
        async with self._database.connection() as connection, connection.transaction():
            sent = await connection.fetchval(_FINISH, job.tenant, job.week.monday, now, failure)
            details: Mapping[str, object] = {"week": str(job.week), "sent": sent, "failure": failure}
            action = "weekly-report.fail" if failure else "weekly-report.send"
            await record_event(connection, SYSTEM, action, str(job.week), details, tenant=job.tenant)


async def _subscription(connection: Connection, tenant: UUID) -> Subscription:
    row = await connection.fetchrow(_SETTINGS, tenant)
    if row is None:
        return Subscription()
    recipients = frozenset(cast("Sequence[UUID]", row["recipients"]))
    return Subscription(row["enabled_since"] is not None, recipients)


def _require(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise _no_tenant()


def _no_tenant() -> TenantNotFound:
    return TenantNotFound("There is no such tenant.")


def _shown(subscription: Subscription) -> dict[str, object]:
    return {"enabled": subscription.enabled, "recipients": sorted(map(str, subscription.recipients))}
