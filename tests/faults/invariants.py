"""Invariants under faults: no delivery without a complete analysis, one answer per request, no files left."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.load import LARGE, MALWARE, PLAIN, SPAM, Load, Outcome, explain, summary
from workshop.rig.product import Product
from workshop.rig.watcher import tree

# What each kind may be answered with 200, verdict and decision; `clean` and `deliver` are checked further.
ALLOWED = {
    PLAIN: {("clean", "deliver"), ("unknown", "undecided")},
    LARGE: {("clean", "deliver"), ("unknown", "undecided")},
    MALWARE: {("malware", "quarantine"), ("unknown", "undecided"), ("suspicious", "quarantine")},
    SPAM: {("spam", "quarantine"), ("unknown", "undecided")},
}
REFUSALS = {"overloaded", "engine_unavailable", "shutting_down"}
RECOVERY_SECONDS = 10.0


def check_answers(load: Load, *, lost: int = 0, refusals: Iterable[str] = REFUSALS) -> None:
    """Every request has one answer, and every answer is one that this kind of message may have."""
    assert load.sent == len(load.outcomes)
    unanswered = [outcome for outcome in load.outcomes if outcome.answer is None]
    assert len(unanswered) <= lost, f"{len(unanswered)} requests got no answer: {summary(load.outcomes)}"
    for outcome in load.outcomes:
        answer = outcome.answer
        if answer is None:
            continue
        if answer.status == 200:
            assert (outcome.verdict, outcome.decision) in ALLOWED[outcome.kind], str(outcome)
        else:
            assert answer.status == 503, str(outcome)
            assert answer.error in refusals, str(outcome)
            assert int(answer.headers["retry-after"]) >= 1, str(outcome)


async def check_deliveries(product: Product, outcomes: Sequence[Outcome]) -> int:
    """Every delivered message was looked at by every required analyzer to the end; return how many there were."""
    delivered = [outcome.ggrid for outcome in outcomes if outcome.delivered]
    for ggrid, record in (await explain(product, delivered)).items():
        engines = record["engines"]
        assert isinstance(engines, list)
        assert {"structure", "message", "rspamd", "clamav"} <= {engine["analyzer"] for engine in engines}, record
        unfinished = [engine for engine in engines if engine["required"] and engine["status"] != "finished"]
        assert not unfinished, f"{ggrid} was delivered though {unfinished} did not finish"
    return len(delivered)


async def check_nothing_spooled(product: Product) -> None:
    """No spool file is left, neither by name nor as the open file of a process."""
    end = time.monotonic() + 30.0
    while left := spooled(product):
        assert time.monotonic() < end, f"still there: {left}"
        await asyncio.sleep(0.05)


def spooled(product: Product) -> list[str]:
    folders = {service.folder / "spool" for service in product.services}
    named = [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]
    opened = [place for service in product.services for pid in tree(service.pid) for place in open_files(pid)]
    return named + [place for place in opened if any(place.startswith(str(folder)) for folder in folders)]


def open_files(pid: int) -> list[str]:
    places = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            places.append(str(link.readlink()))
        except OSError:
            continue  # Closed while we looked.
    return places


def peak_memory(pid: int) -> float:
    """Return the most memory that a process has held so far, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no VmHWM")
