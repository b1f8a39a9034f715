"""The scan source `smtp`: its port, and each message from Postfix: scanned, carried out, and then answered.

Security: only the networks of `clients` may connect. The reply is 451 4.3.2 on Overloaded, 451 on EngineUnavailable and
any other error, and 421 while guard stops: Postfix keeps the message each time and retries.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from mailwarden.access.tenants import TenantDirectory, grouped
from mailwarden.errors import EngineUnavailable, Overloaded
from mailwarden.guard.context import GuardContext, MailParts
from mailwarden.guard.sources.smtp_delivery import (
    DELIVERY_TIMEOUTS,
    Delivery,
    Progress,
    answered,
)
from mailwarden.model.envelope import Envelope
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import Assignment
from mailwarden.quarantine.release_token import ReleaseTokens, ReleaseTokenSigner, ReleaseTokenStore, TokenInUse
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.scan.shared_answer import Part, settle
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.smtp.commands import UNDECIDED, Recipient, Rejection
from mailwarden.smtp.listener import SmtpListener
from mailwarden.smtp.session import Transaction
from mailwarden.smtp.settings import Smtp as Settings
from mailwarden.telemetry.logs import get_logger
from mailwarden.user_reports.intake import NotStored, ReportIntake

BEING_DELIVERED = "451 4.3.0 This released message is already being delivered; try again later"
CLAIM_MARGIN = 60.0  # seconds beyond the longest delivery in which no other session may take the same release token
FULL = "451 4.3.2 Too many messages are in processing; try again"
REPORTED = "250 2.0.0 Ok: the report is stored"

log = get_logger(__name__)


class Smtp:
    name = "smtp"

    def __init__(
        self,
        settings: Settings,
        *,
        admission: Admission,
        processing: Processing,
        tenants: TenantDirectory,
        delivery: Delivery,
        tokens: ReleaseTokens,
        spool: Path,
        reports: ReportIntake | None = None,
    ) -> None:
        self.settings = settings
        self.stopping = False
        self._admission = admission
        self._processing = processing
        self._tenants = tenants
        self._delivery = delivery
        self._tokens = tokens
        self._spool = spool
        self._reports = reports

    def require_room(self) -> None:
        if self._admission.delay() is None:
            raise self._full()

    def assign(self, recipient: str) -> Assignment:
        return self._tenants.assign(recipient)

    def spool(self) -> SpoolWriter:
        return SpoolWriter(self._spool)

    async def take(self, transaction: Transaction, raw: Spooled) -> str:
        """Scan one message for each tenant, carry out the decisions, store them, and return the reply."""
        assert transaction.sender is not None
        try:
            claimed = await self._tokens.claim(raw, [recipient.address for recipient in transaction.recipients])
        except TokenInUse:
            raise Rejection(BEING_DELIVERED) from None
        if claimed is not None:  # a released message, which was judged before
            answer = await self._delivery.forward_released(
                transaction.recipients, transaction.sender, transaction.forwarded, raw
            )
            await (self._tokens.spend(claimed) if answer.done else self._tokens.give_back(claimed))
            return answer.reply
        try:
            async with self._admission.admitted(raw.size):
                judged = await self._processing.judge(self._scan_of(transaction, raw))
                recipients, not_stored = await self._store_reports(transaction, judged, raw)
        except Overloaded:
            raise self._full() from None
        except EngineUnavailable:
            raise Rejection(UNDECIDED) from None
        judged = [part for part in judged if recipients[part.tenant]]
        if not judged:
            self._delivery.count("reported" if not_stored is None else "not_stored")
            return REPORTED if not_stored is None else not_stored.reply(session_open=self._session_open)
        parts = settle(judged, apart=True)
        progress = Progress(parts, recipients)
        try:
            answer = await self._delivery.carry_out(progress, transaction.sender, transaction.forwarded, raw)
        except BaseException:  # such as a cancellation: the client hung up, or guard stops
            self._processing.keep_unconfirmed(_of_tenants(parts, progress.reached))
            raise
        # Otherwise the client retries, and history stores the result of the retry. A message that may be in a mailbox
        # or in quarantine has a row all the same: analysts must see why it is there.
        done = {part.tenant for part in answered(parts)} if answer.done else progress.reached
        if kept := _of_tenants(parts, done):
            await self._processing.keep(kept)
        return answer.reply

    async def _store_reports(
        self, transaction: Transaction, judged: Sequence[Part], raw: Spooled
    ) -> tuple[Mapping[UUID, Sequence[Recipient]], NotStored | None]:
        """Store the mail as a report where a report address is a recipient; return the other recipients by tenant.

        Also return why a report is not stored: the reply says so only if the mail has no other recipient. A client that
        retries because a later step failed adds no second report.
        """
        kinds = self._reports.addressed(transaction.tenants) if self._reports is not None else {}
        if self._reports is None or not kinds:
            return transaction.tenants, None
        outcomes = [await self._reports.store(part, kinds[part.tenant], raw) for part in judged if part.tenant in kinds]
        others = {tenant: self._reports.without_reports(those) for tenant, those in transaction.tenants.items()}
        return others, next((outcome for outcome in outcomes if outcome is not None), None)

    @property
    def _session_open(self) -> bool:
        """Return whether the sender waits for the reply, which may be a rejection."""
        return self.settings.mode == "beforeQueue"

    def _full(self) -> Rejection:
        self._delivery.count("full")
        return Rejection(FULL)

    def _scan_of(self, transaction: Transaction, raw: Spooled) -> Scan:
        """Return the scan of a message, with the tenants that its recipients were assigned to at RCPT."""
        assert transaction.sender is not None
        envelope = Envelope(
            sender=transaction.sender.address,
            recipients=tuple(dict.fromkeys(recipient.address for recipient in transaction.recipients)),
            remote_address=transaction.forwarded.address,
            helo=transaction.forwarded.helo,
        )
        groups = grouped((assignment, address) for address, assignment in transaction.assigned.items())
        return Scan(self.name, envelope, groups, raw, session_open=self._session_open)


def _of_tenants(parts: Sequence[Part], tenants: Set[UUID]) -> list[Part]:
    return [part for part in parts if part.tenant in tenants]


def smtp_source(context: GuardContext, mail: MailParts) -> Smtp:
    """Return the source without its listener."""
    config, settings = context.config, context.config.scan_sources.smtp
    assert settings is not None  # there are no mail parts otherwise
    hop, database = mail.hop, context.database
    writer = QuarantineWriter(mail.vault, QuarantineStore(database), config.quarantine.days)
    return Smtp(
        settings,
        admission=context.admission,
        processing=context.processing,
        tenants=context.tenants,
        delivery=Delivery(hop, ResultSeal(mail.key), writer, context.metrics),
        tokens=ReleaseTokens(
            ReleaseTokenSigner(mail.key),
            ReleaseTokenStore(database),
            DELIVERY_TIMEOUTS * hop.timeout + CLAIM_MARGIN,
        ),
        spool=context.spool,
        reports=mail.reports,
    )


@asynccontextmanager
async def open_smtp(context: GuardContext, mail: MailParts | None) -> AsyncIterator[Callable[[], None]]:
    """Listen for Postfix until the block ends, if configured; yield the function that closes the listener."""
    config = context.config
    settings = config.scan_sources.smtp
    if settings is None or mail is None:
        yield lambda: None
        return
    analysis_timeout, source = config.analysis_timeout / 1000, smtp_source(context, mail)
    listener = SmtpListener(source, mail.name, analysis_timeout, context.metrics)
    try:
        await listener.start()
        yield listener.close
    finally:
        await listener.stop(config.shutdown_grace_period / 1000)
