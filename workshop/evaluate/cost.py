"""The cost of our analyzers: processor time in one process, and the wall time that the workers reported."""

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Status
from mailwarden.pipeline.registry import CONCLUDING, LOCAL, MESSAGE
from mailwarden.pipeline.worker_steps import Job, run_steps
from workshop.evaluate.records import Scanned

OWN = frozenset([*(local.name for local in LOCAL), *(concluding.name for concluding in CONCLUDING)])

Costs = dict[str, float]


def processor_time(raw: bytes, envelope: Envelope) -> Costs:
    """Return the processor milliseconds of each local analyzer; all of them need structure and parse."""
    costs: Costs = {}
    before = time.process_time()
    for frame in run_steps(Job(raw, envelope=envelope)):
        now = time.process_time()
        costs[frame.report.analyzer] = (now - before) * 1000
        before = time.process_time()
    return costs


def own(costs: Costs) -> float:
    return sum(milliseconds for name, milliseconds in costs.items() if name in OWN)


def reported(records: Iterable[Scanned]) -> list[float]:
    """Return the wall milliseconds of our analyzers for each message, from their reports."""
    return [
        sum(report.milliseconds for report in record.evidence.reports if report.analyzer in OWN)
        for record in records
        if any(report.analyzer == MESSAGE and report.status is Status.FINISHED for report in record.evidence.reports)
    ]


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def cost_table(title: str, measured: Sequence[Costs]) -> Iterator[str]:
    """Yield the cost of all our analyzers together, and of each with a measurable cost."""
    if not measured:
        return
    totals = [own(costs) for costs in measured]
    yield _line(f"{title}: own analyzers", totals)
    names = sorted({name for costs in measured for name in costs}, key=lambda name: -_mean(measured, name))
    for name in names:
        yield _line(f"  {name}", [costs.get(name, 0.0) for costs in measured])


def cost_line(title: str, values: Sequence[float]) -> str:
    return _line(title, values)


def _mean(measured: Sequence[Costs], name: str) -> float:
    return statistics.fmean(costs.get(name, 0.0) for costs in measured)


def _line(name: str, values: Sequence[float]) -> str:
    if not values:
        return f"{name}: nothing measured"
    median, high = statistics.median(values), percentile(values, 0.99)
    return f"{name:44} median {median:7.2f} ms  p99 {high:8.2f} ms  most {max(values):8.2f} ms"
