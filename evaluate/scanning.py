"""Sends messages through guard's own processing, put together as guard puts itself together, with the rig's engines.

guard is built by its own `built_house` from the configuration that `mailwarden init` writes: engines, killable
workers, lists, database. Left out are only the doors (abby, HTTPS and admission), which see no message's content;
in return every finding comes back whole. Nothing is stored, so that no message changes what is thought of the next.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import uvloop

from evaluate.corpus import Posted
from evaluate.records import Scanned
from evaluate.rivals import BareRspamd, SpamAssassin, has_spamassassin
from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.guard.app import House, built_house
from mailwarden.guard.config import PATH, GuardConfig
from mailwarden.guard.processing import GuardRequest
from mailwarden.model.evidence import Evidence
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.serving.spool import Spooled
from mailwarden.settings.reader import read
from mailwarden.telemetry.logs import start_logging
from mailwarden.telemetry.metrics import Metrics
from rig.engines import Engines, start_engines
from rig.product import install_product

AT_ONCE = 8
DEADLINE = 90.0
TENANT = UUID("0e5a1e00-0000-7000-a000-000000000000")
_PROGRESS_SECONDS = 1.0

Ask = Callable[[Posted], Awaitable[float | None]]
Progress = Callable[[int], None]


async def no_score(_: Posted) -> float | None:
    """Answer for a rival that is not there."""
    return None


def scan_all(posts: Iterable[Posted], total: int) -> list[Scanned]:
    """Start everything, scan the messages, stop everything."""
    start_logging("evaluate", "error")
    with start_engines() as engines:
        return scan_with(engines, posts, total)


def scan_with(engines: Engines, posts: Iterable[Posted], total: int) -> list[Scanned]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        product = install_product(folder, engines, engines.postgresql.create_database(f"evaluate_{os.getpid()}"))
        rspamd = BareRspamd(engines.rspamd.address).score
        spamassassin: Ask = no_score
        if has_spamassassin():
            spamd = SpamAssassin(folder)
            spamd.start()
            stack.callback(spamd.stop)
            spamassassin = spamd.score
        return uvloop.run(_scan(product.guards[0].folder, posts, (rspamd, spamassassin), Meter(total).show))


async def _scan(folder: Path, posts: Iterable[Posted], rivals: tuple[Ask, Ask], progress: Progress) -> list[Scanned]:
    async with built_house(read(folder / PATH, GuardConfig), folder, Metrics()) as (_, house):
        return await scan_side_by_side(house, posts, rivals, progress)


async def scan_side_by_side(
    house: House, posts: Iterable[Posted], rivals: tuple[Ask, Ask], progress: Progress
) -> list[Scanned]:
    """Scan so many messages at once, and return what became of each in their order."""
    waiting = enumerate(posts)
    done: dict[int, Scanned] = {}

    async def work() -> None:
        for position, posted in waiting:
            done[position] = await _scan_one(house, posted, rivals)
            progress(len(done))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
    return [done[position] for position in sorted(done)]


async def _scan_one(house: House, posted: Posted, rivals: tuple[Ask, Ask]) -> Scanned:
    request = GuardRequest(
        ggrid=new_ggrid(),
        source="evaluate",
        envelope=posted.envelope,
        assignment=Assignment(TENANT, AssignedBy.REQUEST),
        raw=Spooled.of(posted.raw),
        deadline=DEADLINE,
        stored=False,
    )
    evidence, subject, problem = Evidence(()), "", ""
    try:
        finished = await house.processing.process(request)
        evidence, subject = finished.evidence, finished.summary.subject
    except Exception as error:  # whatever it is would be a 500 at the door, and is counted as one
        problem = f"{type(error).__name__}: {error}"[:300]
    rspamd, spamassassin = [await _ask(rival, posted) for rival in rivals]
    return Scanned(posted.sample, evidence, subject[:200], problem, rspamd, spamassassin)


async def _ask(rival: Ask, posted: Posted) -> float | None:
    try:
        return await rival(posted)
    except (OSError, TimeoutError, EngineFailed, ValueError):
        return None


class Meter:
    """Shows how far it has come: over and over on one line at a terminal, seldom elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = time.monotonic()
        self._said = 0.0

    def show(self, done: int) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if done < self._total and now - self._said < (_PROGRESS_SECONDS if terminal else 15 * _PROGRESS_SECONDS):
            return
        self._said = now
        rate = done / max(now - self._began, 0.001)
        text = f"{done:,} of {self._total:,} messages, {rate:.0f}/s, {(self._total - done) / max(rate, 0.1):.0f} s left"
        print(f"\r{text}\x1b[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
        if terminal and done >= self._total:
            print(file=sys.stderr)
