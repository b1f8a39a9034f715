"""The scan source `smtp`: its port, and each message from Postfix: scanned, carried out, and then answered.

Security: only the networks of `clients` may connect. The reply is 451 4.3.2 on Overloaded, 451 on EngineUnavailable and
any other error, and 421 while guard stops: Postfix keeps the message each time and retries.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import UUID

import structlog
from msgspec.structs import replace

from mailwarden.access.tenants import TenantDirectory, grouped
from mailwarden.cases.service import CaseService
from mailwarden.cases.store import CaseStore
from mailwarden.crypto.keyring import KeyRing, read_ring
from mailwarden.errors import EngineUnavailable, Overloaded
from mailwarden.guard.admission import Admission
from mailwarden.guard.config import Smtp as Settings
from mailwarden.guard.context import GuardContext
from mailwarden.guard.jobs.case_answers import CaseAnswers
from mailwarden.guard.jobs.quarantine import start_quarantine
from mailwarden.guard.jobs.report_mailbox import start_report_mailboxes
from mailwarden.guard.jobs.weekly_reports import start_weekly_reports
from mailwarden.guard.processing import Examined, GuardRequest, Processing
from mailwarden.guard.result_headers import ResultSeal
from mailwarden.guard.smtp.commands import Recipient, Rejection
from mailwarden.guard.smtp.delivery import DELIVERY_TIMEOUTS, UNDECIDED, Delivery, Part, Progress, answered, settle
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.guard.smtp.reader import PIECE
from mailwarden.guard.smtp.report_intake import NotStored, ReportIntake
from mailwarden.guard.smtp.session import STOPPING, Receiver, SmtpSession, Transaction
from mailwarden.history import open_history
from mailwarden.learning.reports import ContentsSeal
from mailwarden.learning.service import ReportService
from mailwarden.learning.store import ReportStore
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import Assignment, RecipientGroup
from mailwarden.quarantine.release_token import ReleaseTokens, ReleaseTokenSigner, ReleaseTokenStore, TokenInUse
from mailwarden.serving.server import open_port
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.settings.shared import Networks, peer_address
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

BEING_DELIVERED = "451 4.3.0 This released message is already being delivered; try again later"
CANCEL_SECONDS = 3.0  # a stop waits no longer for sessions that are cancelled
CLAIM_MARGIN = 60.0  # seconds beyond the longest delivery in which no other session may take the same release token
FULL = "451 4.3.2 Too many messages are in processing; try again"
REPORTED = "250 2.0.0 Ok: the report is stored"
SLACK_SECONDS = 60.0

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
        analysis_timeout: float,
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
        self._analysis_timeout = analysis_timeout
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
            claimed = await self._tokens.claim(raw, [each.address for each in transaction.recipients])
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
                examined = await self._examine(transaction, raw)
                recipients, not_stored = await self._store_reports(transaction, examined, raw)
        except Overloaded:
            raise self._full() from None
        except EngineUnavailable:
            raise Rejection(UNDECIDED) from None
        examined = [each for each in examined if recipients[each.finished.tenant]]
        if not examined:
            self._delivery.count("reported" if not_stored is None else "not_stored")
            return REPORTED if not_stored is None else not_stored.reply(session_open=self._session_open)
        parts = settle([Part(each.finished, recipients[each.finished.tenant]) for each in examined])
        examined = [replace(each, finished=part.finished) for each, part in zip(examined, parts, strict=True)]
        progress = Progress(parts)
        try:
            answer = await self._delivery.carry_out(progress, transaction.sender, transaction.forwarded, raw)
        except BaseException:  # such as a cancellation: the client hung up, or guard stops
            self._processing.keep_unconfirmed(_of_tenants(examined, progress.reached))
            raise
        # Otherwise the client retries, and history stores the result of the retry. A message that may be in a mailbox
        # or in quarantine has a row all the same: analysts must see why it is there.
        done = {part.finished.tenant for part in answered(parts)} if answer.done else progress.reached
        if kept := _of_tenants(examined, done):
            await self._processing.keep(kept)
        return answer.reply

    async def _store_reports(
        self, transaction: Transaction, examined: Sequence[Examined], raw: Spooled
    ) -> tuple[Mapping[UUID, Sequence[Recipient]], NotStored | None]:
        """Store the mail as a report where a report address is a recipient; return the other recipients by tenant.

        Also return why a report is not stored: the reply says so only if the mail has no other recipient. A client that
        retries because a later step failed adds no second report.
        """
        kinds = self._reports.addressed(transaction.tenants) if self._reports is not None else {}
        if self._reports is None or not kinds:
            return transaction.tenants, None
        outcomes = [
            await self._reports.store(each, kinds[each.finished.tenant], raw)
            for each in examined
            if each.finished.tenant in kinds
        ]
        others = {tenant: self._reports.without_reports(those) for tenant, those in transaction.tenants.items()}
        return others, next((each for each in outcomes if each is not None), None)

    @property
    def _session_open(self) -> bool:
        """Return whether the sender waits for the reply, which may be a rejection."""
        return self.settings.mode == "beforeQueue"

    def _full(self) -> Rejection:
        self._delivery.count("full")
        return Rejection(FULL)

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
            session_open=self._session_open,
        )
        return await self._processing.examine(request)


def _of_tenants(examined: Sequence[Examined], tenants: Set[UUID]) -> list[Examined]:
    return [each for each in examined if each.finished.tenant in tenants]


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
        start_weekly_reports(context, hop=hop, stack=stack)
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
            reports=_open_reports(context, key=key, hop=hop, stack=stack),
        )
        listener = SmtpListener(source, name, analysis_timeout, context.metrics)
        stack.push_async_callback(listener.stop, config.shutdown_grace_period / 1000)
        await listener.start()
        yield listener.close


def _open_reports(context: GuardContext, *, key: KeyRing, hop: NextHop, stack: AsyncExitStack) -> ReportIntake | None:
    """Return the intake of reports, if configured; mailboxes are polled and answers sent until the stack is closed."""
    config, database = context.config, context.database
    if config.reports is None:
        return None
    history = open_history(database, clickhouse=context.clickhouse)
    store, seal = CaseStore(database), ContentsSeal(key)
    answers = CaseAnswers(
        store,
        hop,
        context.tenants,
        sender=config.reports.sender,
        retention_days=config.history.retention_days,
        metrics=context.metrics,
    )
    stack.push_async_callback(answers.stop)
    answers.start()
    intake = ReportIntake(
        config.reports,
        CaseService(store, history, ReportService(ReportStore(database), history, seal), seal),
        tenants=context.tenants,
        admission=context.admission,
        processing=context.processing,
        analysis_timeout=config.analysis_timeout / 1000,
        metrics=context.metrics,
    )
    start_report_mailboxes(context, intake=intake, stack=stack)
    return intake


class SmtpListener:
    """The port: the clients that may connect, how many at once, and an orderly stop."""

    def __init__(self, receiver: Receiver, hostname: str, analysis_timeout: float, metrics: Metrics) -> None:
        """Serve on behalf of the receiver, whose analysis of a message takes up to `analysis_timeout` seconds."""
        settings = receiver.settings
        self.receiver = receiver
        self.hostname = hostname
        # Longer than everything one command may take: a backstop in case another timeout fails.
        waits = settings.command_timeout + settings.data_timeout + 4 * settings.next_hop_timeout
        self.deadline = waits / 1000 + analysis_timeout + SLACK_SECONDS
        self._networks = Networks.of(settings.clients)
        self._connections: set[SmtpConnection] = set()
        self._running: set[asyncio.Task[None]] = set()  # sessions, also those that end after their connection
        self._empty = asyncio.Event()
        self._empty.set()
        self._stopped_at = 0.0
        self._server: asyncio.Server | None = None
        metrics.gauge("smtp_sessions", "SMTP sessions open.").set_function(lambda: len(self._connections))
        metrics.gauge("smtp_sessions_limit", "SMTP sessions that may be open.").set(settings.max_connections)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        listen = self.receiver.settings.listen
        self._server = await open_port(lambda: SmtpConnection(self), listen)
        log.info("listening", host=listen.host, port=self.port, source=self.receiver.name)

    def close(self) -> None:
        """Accept no new message: idle clients get 421, and running transactions are completed."""
        if self.receiver.stopping:
            return
        self.receiver.stopping = True
        self._stopped_at = time.monotonic()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.leave()

    async def stop(self, grace: float) -> None:
        """Wait for running transactions until the grace period is over, counted from `close`.

        Then cancel them, and wait a little more: a cancelled session may leave rows for the journal, which closes next.
        """
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._stopped_at + grace - time.monotonic(), 0.0)):
                await self._empty.wait()
        for connection in tuple(self._connections):
            connection.abort()
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=CANCEL_SECONDS)

    def run(self, session: SmtpSession) -> asyncio.Task[None]:
        running = asyncio.get_running_loop().create_task(session.run())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    def admit(self, connection: "SmtpConnection", address: str) -> str | None:
        """Count a connection and return None, or return the reply that rejects it."""
        client = peer_address(address)
        if client is None or client not in self._networks:
            log.warning("smtp_client_refused", client=address)
            return "554 5.7.1 Client not allowed"  # RFC 5321, section 3.1: 554 in place of 220
        if self.receiver.stopping:
            return STOPPING
        if len(self._connections) >= self.receiver.settings.max_connections:
            return "421 4.3.2 Too many sessions; try again"
        self._connections.add(connection)
        self._empty.clear()
        return None

    def forget(self, connection: "SmtpConnection") -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()


class SmtpConnection(asyncio.StreamReaderProtocol):
    """One connection: its session runs while the client is connected, and is cancelled on disconnect.

    A client that hangs up before the reply still has the message and sends it again (RFC 5321, section 4.5.4.1), so
    guard stops working on it.
    """

    def __init__(self, listener: SmtpListener) -> None:
        super().__init__(asyncio.StreamReader(limit=PIECE), self._begin)
        self._listener = listener
        self._admitted = False
        self._session: SmtpSession | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._running: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("",)
        rejection = self._listener.admit(self, str(peer[0]))
        if rejection is None:
            self._admitted = True
            super().connection_made(transport)
            return
        cast("asyncio.Transport", transport).write(f"{rejection}\r\n".encode())
        transport.close()

    def data_received(self, data: bytes) -> None:
        if self._admitted:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        """End the session; returning False closes the connection, also where the session has not begun to run."""
        self._cancel()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.forget(self)
        self._cancel()
        if self._admitted:
            super().connection_lost(error)

    def leave(self) -> None:
        if self._session is not None:
            self._session.leave()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener = self._listener
        self._writer = writer
        self._session = SmtpSession(listener.receiver, listener.hostname, listener.deadline, reader, writer)
        self._running = listener.run(self._session)

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()


def greeting_name(name: str) -> str:
    """Return guard's name in SMTP: a valid domain, or guard.localhost."""
    name = name or socket.gethostname()
    return name if name.isascii() and name.replace(".", "").replace("-", "").isalnum() else "guard.localhost"
