"""Cases in PostgreSQL: opened, joined and closed under one lock for each tenant, and the answers that are due."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

from mailwarden.access.audit import record_event
from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.database.queue import MAX_ATTEMPTS, next_attempt
from mailwarden.database.rows import read, read_optional
from mailwarden.database.visible import in_scope
from mailwarden.errors import CaseClosed, CaseNotFound, TenantForbidden
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.cases.model import (
    Added,
    Answer,
    AnswerState,
    Case,
    CaseCursor,
    CaseOutcome,
    CaseReport,
    CaseState,
    NewCaseReport,
    Stored,
    agreed_kind,
    base_address,
)
from mailwarden.user_reports.mailbox.report_mail import ReportFormat
from mailwarden.user_reports.reports import Kind

MAX_PAGE = 100
MAX_COUNTED = 1_000  # open cases
MAX_REPORTS = 500  # of one case that are shown
MAX_UNVERIFIED = 1_000  # reports a day of one tenant that are not verified
_LOCKS = 0x6D77_6361  # one lock for each tenant

_MINE = in_scope()
_CASE = f"""
SELECT cases.*, coalesce(counted.reports, 0) AS reports, coalesce(counted.reporters, 0) AS reporters, counted.ggrid
FROM cases LEFT JOIN LATERAL (
    SELECT count(*) AS reports, count(DISTINCT base_address) AS reporters,
           (array_agg(ggrid ORDER BY reported_at, uid) FILTER (WHERE ggrid IS NOT NULL))[1] AS ggrid
    FROM case_reports WHERE case_uid = cases.uid
) AS counted ON true
WHERE {in_scope("cases.tenant")}
"""  # noqa: S608 -- from constants
_RANK = "CASE WHEN state = 'open' AND agreed IS NOT NULL THEN 2 WHEN state = 'open' THEN 1 ELSE 0 END"
_ONE = f"{_CASE} AND cases.uid = $2"
_PAGE = f"""
{_CASE} AND ($2::text IS NULL OR state = $2)
AND ($4::timestamptz IS NULL OR ({_RANK}, changed_at, cases.uid) < ($3::integer, $4, $5::uuid))
ORDER BY {_RANK} DESC, changed_at DESC, cases.uid DESC LIMIT $6
"""
_COUNT_OPEN = f"""
SELECT count(*) FROM (
    SELECT 1 FROM cases WHERE {_MINE} AND state = 'open' LIMIT $2
) AS counted
"""  # noqa: S608 -- from constants above
_REPORT = f"""
SELECT uid, tenant, case_uid, reporter, kind, format, message_id, subject, sender, ggrid, digest, reported_at,
       trained_as, answer, contents IS NOT NULL AS kept
FROM case_reports WHERE {_MINE}
"""  # noqa: S608 -- from constants above
_OF_CASE = f"{_REPORT} AND case_uid = $2 ORDER BY reported_at, uid LIMIT {MAX_REPORTS}"
_UNVERIFIED = f"{_REPORT} AND case_uid IS NULL ORDER BY reported_at DESC, uid DESC LIMIT $2"
_CONTENTS = f"""
SELECT contents FROM case_reports WHERE {_MINE} AND uid = $2
"""  # noqa: S608 -- from constants above
_LOCK = "SELECT pg_advisory_xact_lock($1, hashtext($2::text))"
_DELIVERED = "SELECT case_uid FROM case_reports WHERE tenant = $1 AND mail = $2 AND number = $3"
_DELIVERED_BEFORE = "SELECT number, case_uid FROM case_reports WHERE tenant = $1 AND mail = $2"
_COUNT = """
INSERT INTO case_report_days (tenant, day, reporter, reports) VALUES ($1, $2, $3, 1)
ON CONFLICT (tenant, day, reporter) DO UPDATE SET reports = case_report_days.reports + 1 RETURNING reports
"""
_REPORTED_TODAY = "SELECT reports FROM case_report_days WHERE tenant = $1 AND day = $2 AND reporter = $3"
# A report may claim any Message-ID: it counts only among reports without a message, of which nothing is learned.
_IS_SAME = """(
    ggrid = $3 OR digest = $4 OR (
        $3::uuid IS NULL AND $4::bytea IS NULL AND ggrid IS NULL AND digest IS NULL
        AND message_id <> '' AND message_id = $5 AND sender = $6
    )
)"""
_OPEN_CASE = f"""
SELECT uid FROM cases WHERE tenant = $1 AND state = 'open' AND (
    campaign = $2 OR uid IN (
        SELECT case_uid FROM case_reports WHERE tenant = $1 AND case_uid IS NOT NULL AND {_IS_SAME}
    )
) ORDER BY campaign IS NOT DISTINCT FROM $2 DESC, opened_at LIMIT 1
"""  # noqa: S608 -- from constants above
_SAME = f"""
SELECT true FROM case_reports WHERE case_uid = $1 AND base_address = $2 AND {_IS_SAME} LIMIT 1
"""  # noqa: S608 -- from constants above
_NEW_CASE = "INSERT INTO cases (uid, tenant, campaign, subject, sender) VALUES ($1, $2, $3, $4, $5)"
# The latest kind of each reporter; a report without a message of history and without bytes shows none.
_KINDS = """
SELECT DISTINCT ON (base_address) kind FROM case_reports
WHERE case_uid = $1 AND (ggrid IS NOT NULL OR digest IS NOT NULL) ORDER BY base_address, reported_at DESC, uid DESC
"""
_TOUCH = "UPDATE cases SET changed_at = now(), agreed = $2 WHERE uid = $1"
_ANSWERED = "SELECT true FROM case_reports WHERE case_uid = $1 AND mail = $2 AND answer <> 'none' LIMIT 1"
_ADD = """
INSERT INTO case_reports (uid, tenant, case_uid, mail, number, reporter, kind, format, message_id, subject, sender,
                          ggrid, digest, contents, answer, base_address)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""
_CLOSE = f"""
UPDATE cases SET state = 'closed', outcome = $3, closed_by = $4, changed_at = now()
WHERE {_MINE} AND uid = $2 AND state = 'open' RETURNING subject
"""  # noqa: S608 -- from constants above
_ANSWER = "UPDATE case_reports SET answer = 'due', next_attempt = now() WHERE case_uid = $1 AND answer = 'wanted'"
_LEARNED = f"""
UPDATE case_reports SET trained_as = $3 WHERE {_MINE} AND uid = $2
"""  # noqa: S608 -- from constants above
_FORGET = f"""
UPDATE case_reports SET contents = NULL WHERE {_MINE} AND case_uid = $2
"""  # noqa: S608 -- from constants above
_CLAIM = f"""
WITH next AS (
    SELECT uid FROM case_reports
    WHERE {_MINE} AND answer = 'due' AND next_attempt <= $2
    ORDER BY next_attempt, uid LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE case_reports AS those SET answer = 'sending', attempts = attempts + 1 FROM next, cases
WHERE those.uid = next.uid AND cases.uid = those.case_uid
RETURNING those.uid, those.tenant, reporter, those.subject, outcome, attempts
"""  # noqa: S608 -- from constants above
_SETTLE = f"""
UPDATE case_reports SET answer = $3, next_attempt = $4
WHERE {_MINE} AND uid = $2 AND answer = 'sending'
"""  # noqa: S608 -- from constants above
_DELETE_OLD = "DELETE FROM cases WHERE changed_at < $1 AND ($2::uuid[] IS NULL OR tenant = ANY ($2))"
_DELETE_UNVERIFIED = """
DELETE FROM case_reports WHERE case_uid IS NULL AND reported_at < $1 AND ($2::uuid[] IS NULL OR tenant = ANY ($2))
"""
_DELETE_DAYS = "DELETE FROM case_report_days WHERE day < $1 AND ($2::uuid[] IS NULL OR tenant = ANY ($2))"


class CaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, scope: Scope, report: NewCaseReport, day: date, per_day: int) -> Added:
        """Store a report: it joins the open case of its message or campaign, or opens one.

        A report that is delivered again, or repeats one of the same reporter, adds nothing. `per_day` bounds the
        reports of one reporter.
        """
        _require(scope, report.tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, _LOCKS, str(report.tenant))
            before = await connection.fetchrow(_DELIVERED, report.tenant, report.mail, report.number)
            if before is not None:
                await confirm_earlier(connection)
                return Added(Stored.REPEATED, read_optional(before, "case_uid", UUID))
            return await _add(connection, report, day, per_day)

    async def delivered(self, scope: Scope, tenant: UUID, mail: bytes) -> Mapping[int, UUID | None]:
        """Return the messages of a mail that an earlier delivery of it stored, by number, each with its case."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            rows = await connection.fetch(_DELIVERED_BEFORE, tenant, mail)
            if rows:
                await confirm_earlier(connection)
        return {read(row, "number", int): read_optional(row, "case_uid", UUID) for row in rows}

    async def has_room(self, scope: Scope, tenant: UUID, address: str, day: date, per_day: int) -> bool:
        """Return whether a base address may report on that day; "" stands for all who are not verified."""
        _require(scope, tenant)
        async with self._database.connection() as connection:
            reports = cast("int | None", await connection.fetchval(_REPORTED_TODAY, tenant, day, address))
        return (reports or 0) < (per_day if address else MAX_UNVERIFIED)

    async def find(self, scope: Scope, uid: UUID) -> Case:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_ONE, scope.uids(), uid)
        if row is None:
            raise CaseNotFound("There is no such case.")
        return _case(row)

    async def page(
        self, scope: Scope, state: CaseState | None = None, before: CaseCursor | None = None, limit: int = MAX_PAGE
    ) -> Sequence[Case]:
        """Return the cases of the scope: open ones first, of these first those on which reporters agree."""
        place = (None, None, None) if before is None else (before.rank, before.changed_at, before.uid)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, scope.uids(), state, *place, min(limit, MAX_PAGE))
        return [_case(row) for row in rows]

    async def count_open(self, scope: Scope) -> int:
        """Return the number of open cases, counted up to MAX_COUNTED."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_COUNT_OPEN, scope.uids(), MAX_COUNTED))

    async def reports(self, scope: Scope, case: UUID) -> Sequence[CaseReport]:
        """Return the reports of a case, the oldest first."""
        async with self._database.connection() as connection:
            return [_report(row) for row in await connection.fetch(_OF_CASE, scope.uids(), case)]

    async def unverified(self, scope: Scope, limit: int = MAX_PAGE) -> Sequence[CaseReport]:
        """Return the reports that are in no case, the newest first."""
        async with self._database.connection() as connection:
            return [_report(row) for row in await connection.fetch(_UNVERIFIED, scope.uids(), min(limit, MAX_PAGE))]

    async def contents(self, scope: Scope, report: UUID) -> bytes | None:
        """Return the sealed message of a report."""
        async with self._database.connection() as connection:
            return cast("bytes | None", await connection.fetchval(_CONTENTS, scope.uids(), report))

    async def close(self, scope: Scope, uid: UUID, outcome: CaseOutcome, actor: Actor) -> Case:
        """Close a case; the answers to its reporters become due. The same outcome again changes nothing.

        It waits for reports of the tenant that are being stored: none joins a case while it closes.
        """
        tenant = (await self.find(scope, uid)).tenant
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, _LOCKS, str(tenant))
            row = await connection.fetchrow(_CLOSE, scope.uids(), uid, outcome, actor.name)
            if row is not None:
                await connection.execute(_ANSWER, uid)
                details = {"case": str(uid), "outcome": outcome}
                await record_event(connection, actor, "cases.close", str(row["subject"])[:200], details, tenant=tenant)
            else:
                await confirm_earlier(connection)
        case = await self.find(scope, uid)
        if case.outcome is not outcome:
            raise CaseClosed(f"The case is closed already, as {case.outcome}.")
        return case

    async def set_trained(self, scope: Scope, report: UUID, kind: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_LEARNED, scope.uids(), report, kind)

    async def forget_contents(self, scope: Scope, case: UUID) -> None:
        """Delete the messages that the reports of a case brought."""
        async with self._database.connection() as connection:
            await connection.execute(_FORGET, scope.uids(), case)

    async def claim_answer(self, scope: Scope, now: datetime) -> Answer | None:
        """Claim the next answer; no other guard gets it, and it is sent again only after `retry_answer`."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_CLAIM, scope.uids(), now)
        if row is None:
            return None
        return Answer(
            report=read(row, "uid", UUID),
            tenant=read(row, "tenant", UUID),
            reporter=str(row["reporter"]),
            subject=str(row["subject"]),
            outcome=CaseOutcome(str(row["outcome"])),
            attempts=read(row, "attempts", int),
        )

    async def settle_answer(self, scope: Scope, answer: Answer, state: AnswerState) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_SETTLE, scope.uids(), answer.report, state, datetime.now(UTC))

    async def retry_answer(self, scope: Scope, answer: Answer, now: datetime) -> None:
        """Try an answer again after a pause, unless its attempts are used up."""
        state = AnswerState.DUE if answer.attempts < MAX_ATTEMPTS else AnswerState.FAILED
        async with self._database.connection() as connection:
            due = next_attempt(now, answer.attempts)
            await connection.execute(_SETTLE, scope.uids(), answer.report, state, due)

    async def delete_old(self, scope: Scope, before: datetime) -> int:
        """Delete cases without a change since then, and older reports without a case; return the number of cases."""
        async with self._database.connection() as connection, connection.transaction():
            today = (await read_now(connection)).date()
            deleted = await connection.execute(_DELETE_OLD, before, scope.uids())
            await connection.execute(_DELETE_UNVERIFIED, before, scope.uids())
            await connection.execute(_DELETE_DAYS, today - timedelta(days=2), scope.uids())
        return int(deleted.rpartition(" ")[2])


async def _add(connection: Connection, report: NewCaseReport, day: date, per_day: int) -> Added:
    same = (report.ggrid, report.digest, report.message_id, report.sender)
    case = None
    if report.verified:
        found = await connection.fetchval(_OPEN_CASE, report.tenant, report.campaign, *same)
        case = cast("UUID | None", found)
        if case is not None and await connection.fetchval(_SAME, case, base_address(report.reporter), *same):
            await confirm_earlier(connection)
            return Added(Stored.REPEATED, case)
    counted = base_address(report.reporter) if report.verified else ""
    reports = cast("int", await connection.fetchval(_COUNT, report.tenant, day, counted))
    if reports > (per_day if report.verified else MAX_UNVERIFIED):
        return Added(Stored.LIMITED)
    stored = Stored.UNVERIFIED
    if report.verified:
        stored = Stored.OPENED if case is None else Stored.JOINED
        case = await _opened(connection, report) if case is None else case
    await _insert(connection, report, case)
    if case is not None:
        kinds = [Kind(str(row["kind"])) for row in await connection.fetch(_KINDS, case)]
        await connection.execute(_TOUCH, case, agreed_kind(kinds))
    return Added(stored, case)


async def _opened(connection: Connection, report: NewCaseReport) -> UUID:
    uid = uuid4()
    await connection.execute(_NEW_CASE, uid, report.tenant, report.campaign, report.subject, report.sender)
    return uid


async def _insert(connection: Connection, report: NewCaseReport, case: UUID | None) -> None:
    """Insert a report; of the messages of one mail in one case, the first gets the answer."""
    answered = report.answered and case is not None
    if answered and await connection.fetchval(_ANSWERED, case, report.mail):
        answered = False
    answer = AnswerState.WANTED if answered else AnswerState.NONE
    contents = None if case is None else report.contents
    about = (report.message_id, report.subject, report.sender)
    await connection.execute(
        _ADD,
        *(report.uid, report.tenant, case, report.mail, report.number, report.reporter),
        *(report.kind, report.format, *about, report.ggrid, report.digest, contents, answer),
        base_address(report.reporter),
    )


def _require(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise TenantForbidden("This tenant is not yours.")


def _case(row: Row) -> Case:
    outcome = row["outcome"]
    return Case(
        uid=read(row, "uid", UUID),
        tenant=read(row, "tenant", UUID),
        campaign=read_optional(row, "campaign", UUID),
        subject=str(row["subject"]),
        sender=str(row["sender"]),
        state=CaseState(str(row["state"])),
        outcome=None if outcome is None else CaseOutcome(str(outcome)),
        opened_at=read(row, "opened_at", datetime),
        changed_at=read(row, "changed_at", datetime),
        closed_by=str(row["closed_by"]),
        reports=read(row, "reports", int),
        reporters=read(row, "reporters", int),
        agreed=None if row["agreed"] is None else Kind(str(row["agreed"])),
        ggrid=read_optional(row, "ggrid", UUID),
    )


def _report(row: Row) -> CaseReport:
    return CaseReport(
        uid=read(row, "uid", UUID),
        tenant=read(row, "tenant", UUID),
        case=read_optional(row, "case_uid", UUID),
        reporter=str(row["reporter"]),
        kind=Kind(str(row["kind"])),
        format=ReportFormat(str(row["format"])),
        message_id=str(row["message_id"]),
        subject=str(row["subject"]),
        sender=str(row["sender"]),
        ggrid=read_optional(row, "ggrid", UUID),
        digest=read_optional(row, "digest", bytes),
        reported_at=read(row, "reported_at", datetime),
        trained_as=str(row["trained_as"]),
        answer=AnswerState(str(row["answer"])),
        kept=bool(row["kept"]),
    )
