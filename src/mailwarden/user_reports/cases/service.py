"""User reports: finds the reported message in history, opens or joins a case, and closes cases with an outcome.

Reports do not train the filter: it is trained when an analyst closes the case with an outcome. Reporters who
agree raise the priority of the case. A reporter counts only if SPF or DKIM authenticates the domain of the address, and
the domain belongs to the tenant. The address itself is not authenticated: a colleague may write as another.

Security: a report may claim any Message-ID and carry any bytes. The original is looked up within one tenant, and a
Message-ID counts only together with the sender in From. It finds the message of history and proves nothing of the
attached bytes: they are stored with it, and learned, only if they are that message by digest, or by subject, sender and
the digests of all parts. Attached bytes that history does not have are grouped by their content, never by the
Message-ID, sender or subject that they claim.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.crypto.keyring import BrokenSeal
from mailwarden.errors import MessageNotFound, TrainingFull
from mailwarden.history.store import HistoryStore
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.similarity import KeyKind, Similarity
from mailwarden.model.storable import replace_unstorable
from mailwarden.search.terms import address_term, fold, hash_term, message_id_term
from mailwarden.telemetry.logs import get_logger
from mailwarden.user_reports.cases.model import (
    MAX_TRAINED,
    NOT_STORED,
    Added,
    Case,
    CaseCursor,
    CaseOutcome,
    CaseReport,
    CaseState,
    NewCaseReport,
    Stored,
    base_address,
)
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox.report_mail import Original, ReportMail
from mailwarden.user_reports.reports import MAX_CONTENTS, ContentsSeal, Kind, TrainingState
from mailwarden.user_reports.service import ReportService

LOOK_BACK = timedelta(days=30)  # in which the original is looked for
MAX_FOUND = 50  # messages of history that are compared with a report
MAX_SCANNED = 3  # originals of one report that are scanned, because history does not have their digest
MAX_SUBJECT = 500
PER_DAY = 50  # reports of one reporter

_CLAIMED = frozenset({KeyKind.SENDER, KeyKind.NETWORK})  # keys of header and envelope alone

Scan = Callable[[bytes], Awaitable[MessageSummary]]
log = get_logger("cases")


class Submission(Struct, frozen=True):
    """A mail to a report mailbox, with what is known of its sender."""

    tenant: UUID
    digest: bytes  # SHA-256 of the whole mail
    mail: ReportMail
    verified: bool  # the reporter's domain is authenticated and belongs to the tenant
    kind: Kind  # if the format does not say


class _Scans:
    """Scans a bounded number of the messages of one report."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._left = MAX_SCANNED

    async def scan(self, content: bytes) -> MessageSummary | None:
        """Return the summary of a message; None if the bound is reached."""
        if not self._left:
            return None
        self._left -= 1
        # The last line end may belong to a boundary of the report (RFC 2046, section 5.1.1).
        return await self._scan(content if content.endswith(b"\n") else content + b"\r\n")


class CaseService:
    def __init__(self, store: CaseStore, history: HistoryStore, reports: ReportService, seal: ContentsSeal) -> None:
        self._store = store
        self._history = history
        self._reports = reports
        self._seal = seal

    async def submit(self, submission: Submission, scan: Scan, per_day: int = PER_DAY) -> Sequence[Added]:
        """Store the reported messages of one mail; `scan` analyzes those whose digest history does not have."""
        submission = replace(submission, mail=_storable(submission.mail))
        added: list[Added] = []
        scans, tenant = _Scans(scan), submission.tenant
        address = base_address(submission.mail.reporter) if submission.verified else ""
        before = await self._store.delivered(Scope.of(tenant), tenant, submission.digest)
        for number, original in enumerate(submission.mail.originals):
            if number in before:
                added.append(Added(Stored.REPEATED, before[number]))
                continue
            if not await self._store.has_room(Scope.of(tenant), tenant, address, _today(), per_day):
                added.append(Added(Stored.LIMITED))
                continue
            report = await self._examined(submission, number, original, scans)
            added.append(await self._store.add(Scope.of(tenant), report, _today(), per_day))
        return added

    async def cases(
        self, scope: Scope, state: CaseState | None = None, before: CaseCursor | None = None, limit: int = 50
    ) -> Sequence[Case]:
        return await self._store.page(scope, state, before, limit)

    async def count_open(self, scope: Scope) -> int:
        return await self._store.count_open(scope)

    async def find(self, scope: Scope, uid: UUID) -> Case:
        return await self._store.find(scope, uid)

    async def reports(self, scope: Scope, case: UUID) -> Sequence[CaseReport]:
        return await self._store.reports(scope, case)

    async def unverified(self, scope: Scope) -> Sequence[CaseReport]:
        return await self._store.unverified(scope)

    async def close(self, scope: Scope, uid: UUID, outcome: CaseOutcome, actor: Actor) -> Case:
        """Close a case: its reporters are answered, and the filter learns the outcome.

        The same outcome again learns the rest, if that failed; until then the messages of the reports are kept.
        """
        case = await self._store.close(scope, uid, outcome, actor)
        own = Scope.of(case.tenant)
        if outcome.kind is not None:
            await self._train(own, await self._store.reports(own, uid), outcome.kind, actor)
        await self._store.forget_contents(own, uid)
        return case

    async def _examined(
        self, submission: Submission, number: int, original: Original, scans: "_Scans"
    ) -> NewCaseReport:
        """Return the report to store; attached bytes that are not the message of history are left out."""
        found = await find_original(self._history, submission.tenant, original, submission.mail.reporter)
        scanned = None
        if original.content is not None and submission.verified and not _has_digest(found, original):
            scanned = await scans.scan(original.content)
        campaign = await self._campaign(submission.tenant, found, scanned)
        is_message = found is None or _has_digest(found, original) or _has_parts(found, scanned)
        shown = original if is_message else replace(original, content=None, digests=())
        return await self._new(submission, number, shown, found, campaign)

    async def _campaign(
        self, tenant: UUID, found: FinishedRequest | None, scanned: MessageSummary | None
    ) -> UUID | None:
        """Return the campaign of the message of history, or else of the attached message."""
        if found is not None:
            return found.campaign.own if found.campaign is not None else None
        if scanned is None:
            return None
        similarity = content_keys(scanned.similarity)
        [campaign] = await self._history.campaigns.assign(Scope.of(tenant), [(tenant, similarity)], _today())
        return None if campaign is None else campaign.own

    async def _new(
        self,
        submission: Submission,
        number: int,
        original: Original,
        found: FinishedRequest | None,
        campaign: UUID | None,
    ) -> NewCaseReport:
        uid, content = uuid4(), original.content
        kept = content is not None and submission.verified and len(content) <= MAX_CONTENTS
        summary = found.summary if found is not None else None
        return NewCaseReport(
            uid=uid,
            tenant=submission.tenant,
            mail=submission.digest,
            number=number,
            reporter=submission.mail.reporter.lower(),
            verified=submission.verified,
            kind=submission.mail.kind or submission.kind,
            format=submission.mail.format,
            message_id=original.message_id,
            subject=(summary.subject if summary else original.subject)[:MAX_SUBJECT],
            sender=(summary.from_address if summary else original.sender).lower(),
            ggrid=found.ggrid if found is not None else None,
            campaign=campaign,
            digest=bytes.fromhex(original.digests[0]) if original.digests else None,
            contents=await asyncio.to_thread(self._seal.close, content, uid) if content is not None and kept else None,
            answered=submission.verified and not submission.mail.automatic,
        )

    async def _train(self, scope: Scope, reports: Sequence[CaseReport], kind: Kind, actor: Actor) -> None:
        for report in [each for each in reports[:MAX_TRAINED] if each.trained_as not in (kind, NOT_STORED)]:
            try:
                is_trained = await self._train_one(scope, report, kind, actor)
            except TrainingFull as error:
                log.warning("case_not_trained", case=str(report.case), reason=error.message)
                raise TrainingFull(
                    f"The case is closed, but not trained. {error.message} Then close it again with the same outcome."
                ) from error
            await self._store.set_trained(scope, report.uid, kind if is_trained else NOT_STORED)

    async def _train_one(self, scope: Scope, report: CaseReport, kind: Kind, actor: Actor) -> bool:
        """Report the message of history, and train with the attached bytes; a mailbox may have changed its header.

        Return whether there are bytes to train with. `submit` stored the attached bytes only if they are that message,
        or if history does not have it.
        """
        contents = await self._opened(scope, report)
        is_kept = False
        if report.ggrid is not None:
            try:
                found = await self._history.find(scope, report.ggrid)
                same = found is not None and report.digest is not None and found.summary.sha256 == report.digest.hex()
                given = contents if same else None
                reported = await self._reports.report_message(scope, str(report.ggrid), kind, actor, given)
                is_kept = reported.state is not TrainingState.NOT_STORED
            except MessageNotFound:  # no longer in history
                same = False
            if same:
                return is_kept
        if contents:
            await self._reports.report_contents(scope, report.tenant, kind, actor, contents=contents)
        return is_kept or bool(contents)

    async def _opened(self, scope: Scope, report: CaseReport) -> bytes | None:
        sealed = await self._store.contents(scope, report.uid) if report.kept else None
        if sealed is None:
            return None
        try:
            return await asyncio.to_thread(self._seal.open, sealed, report.uid)
        except BrokenSeal as error:
            log.warning("report_unreadable", report=str(report.uid), reason=str(error))
            return None


async def find_original(
    history: HistoryStore, tenant: UUID, original: Original, reporter: str
) -> FinishedRequest | None:
    """Return the reported message of the tenant's history; first the reporter's own copy, then the newest."""
    scope, since = Scope.of(tenant), datetime.now(UTC) - LOOK_BACK
    found: Sequence[FinishedRequest] = []
    if original.digests:
        rows = await history.candidates(scope, [hash_term(each) for each in original.digests], since, MAX_FOUND)
        found = [row for row in rows if row.summary.sha256 in original.digests]
    if not found and original.message_id:
        rows = await history.candidates(scope, [message_id_term(original.message_id)], since, MAX_FOUND)
        found = [row for row in rows if _is_same_message(row, original)]
    if not found and not original.message_id and original.sender and original.subject:
        rows = await history.candidates(scope, [address_term("from", original.sender)], since, MAX_FOUND)
        found = [row for row in rows if _is_same_subject(row, original) and _is_recipient(row, reporter)]
    return next((row for row in found if _is_recipient(row, reporter)), found[0] if found else None)


def _storable(mail: ReportMail) -> ReportMail:
    """Return the mail with every text as history and PostgreSQL can store it: this is the only place that does so."""
    originals = [
        replace(
            original,
            message_id=replace_unstorable(original.message_id),
            subject=replace_unstorable(original.subject),
            sender=replace_unstorable(original.sender),
        )
        for original in mail.originals
    ]
    return replace(mail, reporter=replace_unstorable(mail.reporter), originals=tuple(originals))


def content_keys(similarity: Similarity) -> Similarity:
    """Return the keys without those of header fields, which a reporter writes at will."""
    return replace(similarity, keys=tuple(key for key in similarity.keys if key.kind not in _CLAIMED))


def _has_digest(found: FinishedRequest | None, original: Original) -> bool:
    return found is not None and found.summary.sha256 in original.digests


def _has_parts(found: FinishedRequest, scanned: MessageSummary | None) -> bool:
    """Return whether an attached message is that of history but for header fields that a mailbox adds."""
    return scanned is not None and bool(scanned.parts) and _identity(scanned) == _identity(found.summary)


def _identity(summary: MessageSummary) -> tuple[object, ...]:
    parts = tuple((part.path, part.media_type, part.sha256) for part in summary.parts)
    return replace_unstorable(summary.subject), summary.from_address.lower(), parts


def _is_same_message(row: FinishedRequest, original: Original) -> bool:
    same = row.summary.message_id.strip("<> \t") == original.message_id.strip("<> \t")
    return same and row.summary.from_address.lower() == original.sender.lower()


def _is_same_subject(row: FinishedRequest, original: Original) -> bool:
    same = row.summary.from_address.lower() == original.sender.lower()
    return same and _plain(row.summary.subject) == _plain(original.subject)


def _plain(subject: str) -> str:
    return " ".join(fold(subject).split())


def _is_recipient(row: FinishedRequest, reporter: str) -> bool:
    return reporter.lower() in {recipient.lower() for recipient in row.envelope.recipients}


def _today() -> date:
    return datetime.now(UTC).date()
