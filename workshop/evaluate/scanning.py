"""Sends messages through guard's own processing with the rig's engines.

guard's own `open_context` builds it from the configuration that `mailwarden init` writes: engines, killable workers,
lists, database. Only the front (abby, HTTPS and admission) is left out; it does not see the content of messages. In
return every finding is complete. Nothing is stored, so that no message changes the result of the next.
"""

import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import uvloop
from msgspec.structs import replace

from mailwarden.analysis.analyzer import EngineFailed, Known
from mailwarden.guard.app import open_context
from mailwarden.guard.config import PATH, GuardConfig
from mailwarden.guard.context import GuardContext
from mailwarden.model.evidence import Evidence, Finding
from mailwarden.model.record import MessageSummary
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.pipeline.collector import Collector
from mailwarden.serving.spool import Spooled
from mailwarden.settings.reader import read
from mailwarden.telemetry.logs import start_logging
from mailwarden.telemetry.metrics import Metrics
from workshop.evaluate.corpus import Submission
from workshop.evaluate.progress import Meter, side_by_side
from workshop.evaluate.records import Scanned
from workshop.evaluate.rivals import PlainRspamd, SpamAssassin, has_spamassassin
from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import install_product

DEADLINE_MS = 90_000
TENANT = UUID("0e5a1e00-0000-7000-a000-000000000000")

GoOn = Callable[[Engines, list[Scanned]], list[Scanned]]
Ask = Callable[[Submission], Awaitable[float | None]]


def leave(_: Engines, records: list[Scanned]) -> list[Scanned]:
    """Do nothing with the scanned messages."""
    return records


async def no_score(_: Submission) -> float | None:
    """Return no score, for a product that is not installed."""
    return None


class AnswerRecorder:
    """Keeps what concluding analyzers know about a message, so that they can be run again without the engines."""

    name: ClassVar[str] = "answer-recorder"

    def conclude(self, known: Known) -> Iterator[Finding]:
        _known.get().append(known)
        yield from ()


_known: ContextVar[list[Known]] = ContextVar("known")


@contextmanager
def recording_answers() -> Iterator[None]:
    """Run the recorder after the concluding analyzers."""
    usual = Collector.concluding
    Collector.concluding = (*usual, AnswerRecorder())
    try:
        yield
    finally:
        Collector.concluding = usual


def scan_all(
    posts: Iterable[Submission], total: int, go_on: GoOn = leave, dns_records: Iterable[str] = ()
) -> list[Scanned]:
    """Start everything, scan the messages, process them while the engines run, stop everything."""
    start_logging("evaluate", "error")
    with start_engines(dns_records=dns_records) as engines:
        return go_on(engines, scan_with(engines, posts, total))


def scan_with(engines: Engines, posts: Iterable[Submission], total: int) -> list[Scanned]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        product = install_product(
            folder, engines, engines.postgresql.create_database(f"evaluate_{secrets.token_hex(6)}")
        )
        rspamd = PlainRspamd(engines.rspamd.address).score
        spamassassin: Ask = no_score
        if has_spamassassin():
            spamd = SpamAssassin(folder)
            spamd.start()
            stack.callback(spamd.stop)
            spamassassin = spamd.score
        return uvloop.run(_scan(product.guards[0].folder, posts, (rspamd, spamassassin), Meter(total)))


async def _scan(folder: Path, posts: Iterable[Submission], rivals: tuple[Ask, Ask], meter: Meter) -> list[Scanned]:
    guard = replace(read(folder / PATH, GuardConfig), analysis_timeout=DEADLINE_MS)
    with recording_answers():
        async with open_context(guard, folder, Metrics()) as (_, context):
            return await side_by_side(posts, lambda posted: _scan_one(context, posted, rivals), meter.step)


async def _scan_one(context: GuardContext, posted: Submission, rivals: tuple[Ask, Ask]) -> Scanned:
    group = RecipientGroup(Assignment(TENANT, AssignedBy.REQUEST), posted.envelope.recipients)
    scan = Scan("evaluate", posted.envelope, (group,), Spooled.of(posted.raw), stored=False)
    evidence, summary, problem = Evidence(()), MessageSummary(len(posted.raw), ""), ""
    known: list[Known] = []
    _known.set(known)
    try:
        finished = await context.processing.answer(scan)
        evidence, summary = _without_recorder(finished.evidence), finished.summary
    except Exception as error:  # any exception would be a 500 in the product, and counts as one
        problem = f"{type(error).__name__}: {error}"[:300]
    rspamd, spamassassin = [await _ask(rival, posted) for rival in rivals]
    return Scanned(
        posted.sample,
        evidence,
        summary.subject[:200],
        problem,
        rspamd,
        spamassassin,
        envelope=posted.envelope,
        summary=summary,
        answers=known[0].answers if known else {},
        sent=posted.sent,
    )


def _without_recorder(evidence: Evidence) -> Evidence:
    return Evidence(tuple(report for report in evidence.reports if report.analyzer != AnswerRecorder.name))


async def _ask(rival: Ask, posted: Submission) -> float | None:
    try:
        return await rival(posted)
    except (OSError, TimeoutError, EngineFailed, ValueError):
        return None
