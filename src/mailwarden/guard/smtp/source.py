"""The scan source `smtp`: receives messages from Postfix, scans them, carries out the decision, and then replies.

Security: only the networks of `clients` may connect. The reply is 451 4.3.2 on Overloaded, 451 on EngineUnavailable and
any other error, and 421 while guard stops: Postfix keeps the message each time and retries.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from msgspec.structs import replace

from mailwarden.access.tenants import TenantDirectory, grouped
from mailwarden.crypto.keyring import read_ring
from mailwarden.errors import EngineUnavailable, Overloaded
from mailwarden.guard.admission import Admission
from mailwarden.guard.context import GuardContext
from mailwarden.guard.jobs.quarantine import start_quarantine
from mailwarden.guard.processing import Examined, GuardRequest, Processing
from mailwarden.guard.result_headers import ResultSeal
from mailwarden.guard.smtp.commands import Refusal
from mailwarden.guard.smtp.config import Smtp as Settings
from mailwarden.guard.smtp.delivery import DELIVERY_TIMEOUTS, UNDECIDED, Delivery, Part, answered, settle
from mailwarden.guard.smtp.listener import SmtpListener, greeting_name
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.guard.smtp.session import Transaction
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import Assignment, RecipientGroup
from mailwarden.quarantine.release_token import ReleaseTokens, ReleaseTokenSigner, ReleaseTokenStore, TokenInUse
from mailwarden.serving.spool import Spooled, SpoolWriter

BEING_DELIVERED = "451 4.3.0 This released message is already being delivered; try again later"
CLAIM_MARGIN = 60.0  # seconds beyond the longest delivery in which no other session may take the same release token
FULL = "451 4.3.2 Too many messages are in processing; try again"


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
        analysis_timeout: float,
    ) -> None:
        self.settings = settings
        self.stopping = False
        self._admission = admission
        self._processing = processing
        self._tenants = tenants
        self._delivery = delivery
        self._tokens = tokens
        self._spool = spool
        self._analysis_timeout = analysis_timeout

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
            claimed = await self._tokens.claim(raw, [each.address for each in transaction.recipients])
        except TokenInUse:
            raise Refusal(BEING_DELIVERED) from None
        if claimed is not None:  # a released message, which was judged before
            answer = await self._delivery.pass_on(
                transaction.recipients, transaction.sender, transaction.forwarded, raw
            )
            await (self._tokens.spend(claimed) if answer.done else self._tokens.give_back(claimed))
            return answer.reply
        try:
            async with self._admission.admitted(raw.size):
                examined = await self._examine(transaction, raw)
        except Overloaded:
            raise self._full() from None
        except EngineUnavailable:
            raise Refusal(UNDECIDED) from None
        parts = settle([Part(each.finished, transaction.tenants[each.finished.tenant]) for each in examined])
        answer = await self._delivery.carry_out(parts, transaction.sender, transaction.forwarded, raw)
        if answer.done:  # otherwise the client retries, and history stores the result of the retry
            done = {part.finished.tenant for part in answered(parts)}
            for each, part in zip(examined, parts, strict=True):
                if part.finished.tenant in done:
                    self._processing.keep(replace(each, finished=part.finished))
        return answer.reply

    def _full(self) -> Refusal:
        self._delivery.count("full")
        return Refusal(FULL)

    async def _examine(self, transaction: Transaction, raw: Spooled) -> Sequence[Examined]:
        """Scan the message once for the recipients of each tenant."""
        ggrid = new_ggrid()
        structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
        request = GuardRequest(
            ggrid=ggrid,
            source=self.name,
            envelope=envelope_of(transaction),
            groups=groups_of(transaction),
            raw=raw,
            deadline=self._analysis_timeout,
            session_open=self.settings.mode == "beforeQueue",
        )
        return await self._processing.examine(request)


def envelope_of(transaction: Transaction) -> Envelope:
    """Return the envelope in the form of the scanning API."""
    assert transaction.sender is not None
    return Envelope(
        sender=transaction.sender.address,
        recipients=tuple(dict.fromkeys(recipient.address for recipient in transaction.recipients)),
        remote_address=transaction.forwarded.address,
        helo=transaction.forwarded.helo,
    )


def groups_of(transaction: Transaction) -> tuple[RecipientGroup, ...]:
    """Return the recipients grouped by the tenant that each was assigned to at RCPT."""
    return grouped((assignment, address) for address, assignment in transaction.assigned.items())


@asynccontextmanager
async def open_smtp(context: GuardContext, guard: str) -> AsyncIterator[Callable[[], None]]:
    """Listen for Postfix until the block ends, if configured; yield the function that closes the listener."""
    config = context.config
    settings = config.scan_sources.smtp
    if settings is None:
        yield lambda: None
        return
    analysis_timeout, name = config.analysis_timeout / 1000, greeting_name(guard)
    async with AsyncExitStack() as stack:
        hop = NextHop(settings.next_hop_address, settings.next_hop_timeout / 1000, name)
        stack.callback(hop.close)
        key = read_ring(context.folder / config.contents.key, "contents.key")
        writer = start_quarantine(context, key=key, hop=hop, stack=stack)
        source = Smtp(
            settings,
            admission=context.admission,
            processing=context.processing,
            tenants=context.tenants,
            delivery=Delivery(hop, ResultSeal(key), writer, context.metrics),
            tokens=ReleaseTokens(
                ReleaseTokenSigner(key),
                ReleaseTokenStore(context.database),
                DELIVERY_TIMEOUTS * hop.timeout + CLAIM_MARGIN,
            ),
            spool=context.spool,
            analysis_timeout=analysis_timeout,
        )
        listener = SmtpListener(source, name, analysis_timeout, context.metrics)
        stack.push_async_callback(listener.stop, config.shutdown_grace_period / 1000)
        await listener.start()
        yield listener.close
