"""Mail to a report address: the reporter is verified by the scan, the report becomes a case, and nothing is delivered.

Security: the reporter is verified if SPF or DKIM authenticates the domain in From, or if a trusted client sent the mail
with the address in From as envelope sender, or if a polled mailbox accepts authenticated senders alone; and if the
domain belongs to the tenant of the report mailbox. This proves the domain, not the address before it. The decision
about the report itself does not count: a report of malware contains malware. If the authentication could not be
checked, the report is not taken: the reply is 451, as to other mail.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from msgspec.structs import replace

from mailwarden.access.tenants import TenantDirectory
from mailwarden.lists.matching import identity_of
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, UNVERIFIED_SENDER
from mailwarden.model.record import MessageSummary
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.scan.shared_answer import Part
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Networks, peer_address
from mailwarden.smtp.commands import UNDECIDED, Recipient, Rejection
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.cases.model import Stored
from mailwarden.user_reports.cases.service import CaseService, Submission
from mailwarden.user_reports.mailbox.report_mail import Original, ReportMail, read_report
from mailwarden.user_reports.reports import Kind
from mailwarden.user_reports.settings import ReportImap, ReportMailboxes

SOURCE = "report"

log = get_logger(__name__)


class NotStored(StrEnum):
    """Why a report, or a part of its messages, is not stored."""

    LIMITED = "too many messages were reported today"
    LIMITED_UNVERIFIED = "too many messages were reported today by senders who are not verified"
    AUTOMATIC = "an automatic mail without a reported message"

    def reply(self, *, session_open: bool) -> str:
        """Return the reply to a mail that has no other recipient.

        Behind the queue Postfix would write a bounce, perhaps to a forged address: a verified reporter's mail is
        retried until the next day has room, and other mail is dropped.
        """
        if session_open:
            return f"550 5.7.1 The report is not stored: {self}"
        if self is NotStored.LIMITED:
            return f"451 4.7.1 The report is not stored: {self}; try again tomorrow"
        return f"250 2.0.0 Ok: not stored: {self}"


class ReportIntake:
    def __init__(
        self,
        settings: ReportMailboxes,
        service: CaseService,
        *,
        tenants: TenantDirectory,
        admission: Admission,
        processing: Processing,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._kinds = {address.lower(): Kind(kind) for address, kind in settings.addresses.items()}
        self._trusted = Networks.of(settings.trusted_networks)
        self._service = service
        self._tenants = tenants
        self._admission = admission
        self._processing = processing
        self._counted = metrics.counter("user_reports", "Messages that users reported, by outcome.", "outcome")

    def without_reports(self, recipients: Iterable[Recipient]) -> list[Recipient]:
        """Return the recipients that are no report address."""
        return [recipient for recipient in recipients if recipient.address.lower() not in self._kinds]

    def addressed(self, tenants: Mapping[UUID, Sequence[Recipient]]) -> Mapping[UUID, Kind]:
        """Return the tenants of which a report address is a recipient, and the kind of their first one."""
        found: dict[UUID, Kind] = {}
        for tenant, recipients in tenants.items():
            for recipient in recipients:
                if (kind := self._kinds.get(recipient.address.lower())) is not None:
                    found.setdefault(tenant, kind)
        return found

    async def store_from_mailbox(self, raw: bytes, mailbox: ReportImap) -> NotStored | None:
        """Scan and store a mail of a polled mailbox; return once it is durable, or why it is not stored, or raise.

        The envelope has neither a sender nor a client, so that SPF authenticates nothing.
        """
        address = mailbox.address.lower()
        message = Spooled.of(raw)
        async with self._admission.admitted(message.size):
            [part] = await self._processing.judge(self._scan_for(address, message))
            return await self.store(part, Kind(mailbox.kind), message, authenticated=mailbox.authenticated_senders)

    async def store(self, part: Part, kind: Kind, raw: Spooled, *, authenticated: bool = False) -> NotStored | None:
        """Store the report of one tenant; return once it is durable, or why it is not stored, or raise.

        `authenticated`: the mailbox accepts mail of authenticated senders alone.
        """
        content = await asyncio.to_thread(raw.data)
        mail = await asyncio.to_thread(read_report, content)
        finished, verified = part.finished, self.is_verified(part, mail, authenticated=authenticated)
        if not verified and self._is_unchecked(part, mail):
            self._counted.labels("unchecked").inc()
            raise Rejection(f"{UNDECIDED} ({finished.ggrid})")
        if not mail.originals:
            if mail.automatic:  # a bounce or an absence notice
                self._counted.labels("ignored").inc()
                return NotStored.AUTOMATIC
            mail = replace(mail, originals=(Original(subject=finished.summary.subject),))
        submission = Submission(
            tenant=finished.tenant,
            digest=sha256(content).digest(),
            mail=mail,
            verified=verified,
            kind=kind,
        )

        async def scan(original: bytes) -> MessageSummary:
            return await self._scan(original, mail.reporter)

        added = await self._service.submit(submission, scan, self._settings.per_reporter)
        for each in added:
            self._counted.labels(each.stored).inc()
        log.info(
            "report_stored", tenant=str(finished.tenant), format=mail.format, outcomes=[each.stored for each in added]
        )
        if all(each.stored is not Stored.LIMITED for each in added):
            return None
        return NotStored.LIMITED if verified else NotStored.LIMITED_UNVERIFIED

    def is_verified(self, part: Part, mail: ReportMail, *, authenticated: bool = False) -> bool:
        finished, reporter = part.finished, mail.reporter.lower()
        owner = self._owner(reporter)
        if owner is None or owner.tenant != finished.tenant:
            return False
        compared, envelope = part.compared, finished.envelope
        identity = identity_of(finished.evidence, envelope, finished.summary, compared.observables)
        if identity.proved_sender.lower() == reporter:
            return True
        if authenticated and identity.senders == (reporter,) and not finished.evidence.has(AMBIGUOUS_SENDER):
            return True
        client = peer_address(envelope.remote_address or "")
        same = envelope.sender.lower() == reporter == finished.summary.from_address.lower()
        return same and client is not None and client in self._trusted

    def _is_unchecked(self, part: Part, mail: ReportMail) -> bool:
        """Return whether a complete analysis may authenticate the reporter: an engine failed, or DNS servers did."""
        finished, owner = part.finished, self._owner(mail.reporter.lower())
        incomplete = finished.judgement.incomplete or finished.evidence.has(UNVERIFIED_SENDER)
        return incomplete and owner is not None and owner.tenant == finished.tenant

    def _owner(self, reporter: str) -> Assignment | None:
        """Return the tenant whose domain the address has."""
        owner = self._tenants.assign(reporter) if reporter else None
        return owner if owner is not None and owner.by is AssignedBy.DOMAINS else None

    async def _scan(self, original: bytes, reporter: str) -> MessageSummary:
        """Analyze a reported message whose digest history does not have; nothing of it is stored in history."""
        [part] = await self._processing.judge(self._scan_for(reporter, Spooled.of(original)))
        return part.finished.summary

    def _scan_for(self, recipient: str, message: Spooled) -> Scan:
        group = RecipientGroup(self._tenants.assign(recipient), (recipient,))
        return Scan(SOURCE, Envelope("", (recipient,)), (group,), message, stored=False)
