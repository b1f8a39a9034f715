"""The quarantine of a guard: the writer, the jobs for digests, retention and metrics, and the sending of releases.

Messages are not scanned again behind the next hop. If releases go to another host with a guard, each message gets a
release token. A token is for one recipient, because an MTA on the way may split the recipients.

Security: guard/smtp/commands validated the envelope when the message arrived. Fields with our own names are removed, as
from every delivered message.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import MessageNotFound
from mailwarden.guard.context import GuardContext
from mailwarden.guard.jobs.digests import Digests, DigestWriter
from mailwarden.guard.result_headers import Cleaned, clean
from mailwarden.guard.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.guard.smtp.next_hop import NO_ANSWER, DeliveryFailed, NextHop
from mailwarden.history import open_history
from mailwarden.learning.reports import ContentsSeal, Kind, MessageCollector
from mailwarden.learning.service import ReportService
from mailwarden.learning.store import ReportStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.digest import DigestLinkSigner, DigestStore
from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.release import ReleaseJob, ReleaseStore
from mailwarden.quarantine.release_token import TOKEN_HOURS, ReleaseToken, ReleaseTokenSigner
from mailwarden.quarantine.retention import QuarantineMetrics, QuarantineRetention, RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import open_vault
from mailwarden.serving.spool import Spooled


def start_quarantine(context: GuardContext, *, key: KeyRing, hop: NextHop, stack: AsyncExitStack) -> QuarantineWriter:
    """Return the writer; releases, digests and retention run until the stack is closed."""
    settings, database = context.config.quarantine, context.database
    vault, releases = open_vault(settings, context.folder, key), ReleaseStore(database)
    if settings.digest is not None:
        writer = DigestWriter(settings.digest, DigestLinkSigner(key))
        digests = Digests(DigestStore(database), writer, hop, context.tenants, settings.digest, metrics=context.metrics)
        stack.push_async_callback(digests.stop)
        digests.start()
    signer = None
    if settings.release_address is not None:
        hop = NextHop(settings.release_address, hop.timeout, "guard.localhost")
        stack.callback(hop.close)
        signer = ReleaseTokenSigner(key)
    history = open_history(database, clickhouse=context.clickhouse)
    reports = ReportService(ReportStore(database), history, ContentsSeal(key))
    releasing = ReleaseJob(
        vault,
        releases,
        ReleaseInjector(hop, signer),
        spool=context.spool,
        listener=ReleaseTraining(reports),
    )
    retention_store = RetentionStore(database)
    retention = QuarantineRetention(vault, retention_store, releases, settings.days)
    totals = QuarantineMetrics(retention_store, context.metrics)
    context.metrics.gauge(
        "quarantine_vault_foreign", "1: the vault belongs to another deployment, and nothing is removed from it."
    ).set_function(lambda: retention.foreign)
    for job in (releasing, retention, totals):
        stack.push_async_callback(job.stop)
        job.start()
    return QuarantineWriter(vault, QuarantineStore(database), settings.days)


class ReleaseInjector:
    """Sends released messages; with a signer each gets a release token, without one the next hop must not scan."""

    def __init__(self, hop: NextHop, signer: ReleaseTokenSigner | None = None) -> None:
        self._hop = hop
        self._signer = signer

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return the error for every recipient whose message was not accepted."""
        cleaned = clean(raw)
        if self._signer is None and len(recipients) > 1:
            try:
                await self._send(message, recipients, cleaned)
            except DeliveryFailed as failure:
                if failure.reply == NO_ANSWER:
                    return dict.fromkeys(recipients, failure.reply)
            else:
                return {}
        failures: dict[str, str] = {}
        for recipient in recipients:  # a rejected recipient does not affect the others
            try:
                await self._send(message, [recipient], cleaned)
            except DeliveryFailed as failure:
                failures[recipient] = failure.reply
        return failures

    async def _send(self, message: HeldMessage, recipients: Sequence[str], cleaned: Cleaned) -> None:
        digest, eight_bit = sha256(), False
        async for chunk in cleaned.stream():
            digest.update(chunk)
            eight_bit = eight_bit or not chunk.isascii()
        field = b""
        if self._signer is not None:
            token = ReleaseToken(message.ggrid, uuid4(), datetime.now(UTC) + timedelta(hours=TOKEN_HOURS))
            field = self._signer.field(token, recipients, digest.digest())
        utf8 = not all(address.isascii() for address in (message.sender, *recipients))
        sender = Sender(message.sender, eight_bit=eight_bit, utf8=utf8)
        size = len(field) + cleaned.size
        connection = await self._hop.prepare(sender, [Recipient(each) for each in recipients], Forwarded(), size)
        await self._hop.send(connection, cleaned.stream(field))


class ReleaseTraining:
    """Reports a released message as harmless: a user asked for it."""

    def __init__(self, reports: ReportService) -> None:
        self._reports = reports

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None:
        intake = MessageCollector()
        async for chunk in raw.stream():
            intake.add(chunk)
        given, scope, actor = intake.finish(), Scope.of(message.tenant), Actor(requested_by)
        try:
            await self._reports.report_message(scope, str(message.ggrid), Kind.RELEASED, actor, given)
        except MessageNotFound:  # no longer in history
            await self._reports.report_contents(scope, message.tenant, Kind.RELEASED, actor, contents=given)
