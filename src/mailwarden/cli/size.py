"""`mailwarden size`: hosts, cores, memory, disks, database sizes and monthly cost for a number of messages a day."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mailwarden.cli.capacity import (
    CapacityModel,
    Coefficients,
    CpuCost,
    Demand,
    Plan,
    Value,
    read_coefficients,
    read_prices,
)
from mailwarden.cli.command import Command, print_json, table


def _number(low: float, high: float) -> Callable[[str], float]:
    """Return a reader of numbers such as 50000000, 50e6 or 50M."""

    def read_number(text: str) -> float:
        factors = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
        factor = factors.get(text[-1:], 1.0)
        try:
            value = float(text[:-1] if factor > 1 else text) * factor
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"`{text[:40]}` is not a number from {low:g} to {high:g}.")
        return value

    return read_number


def _whole(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of whole numbers."""

    def read_whole(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"`{text[:40]}` is not a whole number from {low} to {high}.")
        return int(text)

    return read_whole


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--messages-per-day", type=_number(1, 1e12), required=True, metavar="N", help="such as 10k, 50M or 1B"
    )
    parser.add_argument(
        "--average-size", type=_number(100, 50e6), default=30_000.0, metavar="S", help="bytes (default: 30k)"
    )
    parser.add_argument(
        "--retention", type=_number(0, 3_650), default=30.0, metavar="D", help="days of history (default: 30)"
    )
    parser.add_argument(
        "--quarantine-retention", type=_number(0, 3_650), default=30.0, metavar="D", help="days (default: 30)"
    )
    parser.add_argument("--quarantine-share", type=_number(0, 1), metavar="X", help="share of messages that are held")
    parser.add_argument(
        "--event-retention", type=_number(4, 90), metavar="D", help="days, as events.retentionDays (default: 14)"
    )
    parser.add_argument(
        "--event-share", type=_number(0, 1), metavar="X", help="share of messages with an event (default: 1)"
    )
    parser.add_argument("--peak-factor", type=_number(1, 100), metavar="X", help="busiest minute by the mean of a day")
    parser.add_argument("--utilisation", type=_number(0.05, 1), metavar="X", help="of the cores at the peak")
    parser.add_argument(
        "--hosts-lost", type=int, choices=range(9), default=1, help="hosts of each role that may fail (default: 1)"
    )
    parser.add_argument(
        "--cores-per-host", type=_whole(2, 1_024), default=16, metavar="C", help="of the largest host (default: 16)"
    )
    parser.add_argument(
        "--core-speed", type=_number(0.1, 100), default=1.0, metavar="X", help="your core by the measured one"
    )
    parser.add_argument("--prices", type=Path, metavar="FILE", help="YAML file with prices (default: examples)")
    parser.add_argument("--coefficients", type=Path, metavar="FILE", help="YAML file (default: the shipped one)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(options: argparse.Namespace) -> int:
    coefficients = read_coefficients(options.coefficients)
    values = coefficients.values
    demand = Demand(
        messages_per_day=options.messages_per_day,
        average_kb=options.average_size / 1_000,
        retention_days=options.retention,
        quarantine_days=options.quarantine_retention,
        peak_factor=_chosen(options.peak_factor, values.peak_factor),
        utilisation=_chosen(options.utilisation, values.utilisation),
        quarantine_share=_chosen(options.quarantine_share, values.quarantine_share),
        event_days=_chosen(options.event_retention, values.event_days),
        event_share=_chosen(options.event_share, values.event_share),
        hosts_lost=options.hosts_lost,
        cores_per_host=options.cores_per_host,
        core_speed=options.core_speed,
    )
    plan = CapacityModel(demand, coefficients, read_prices(options.prices)).plan()
    if options.json:
        totals = {"hosts": plan.hosts, "cores": plan.cores}
        print_json({"demand": demand, "plan": plan, "totals": totals, "coefficients": coefficients})
    else:
        print("\n".join(_lines(demand, plan, coefficients)))
    return 0


def _chosen(given: float | None, default: Value) -> float:
    return default.value if given is None else given


def _lines(demand: Demand, plan: Plan, coefficients: Coefficients) -> Iterator[str]:
    yield (
        f"{demand.messages_per_day:,.0f} messages a day of {demand.average_kb:g} KB: {plan.mean_rate:,.1f} a second, "
        f"{plan.peak_rate:,.1f} at the peak (factor {demand.peak_factor:g}); cells: {plan.cells}"
    )
    rows = [("ROLE", "HOSTS", "CORES", "MEMORY", "DISK", "BECAUSE")]
    rows += [
        (
            role.name,
            f"{role.hosts:,}",
            f"{role.cores:,} ({role.cores_per_host} each)",
            f"{role.memory_gib:,} GiB ({role.memory_gib_per_host} each)",
            f"{role.disk_gb:,} GB ({role.disk_gb_per_host:,} each)",
            role.reason,
        )
        for role in plan.roles
    ]
    yield table(rows)
    yield f"History of {demand.retention_days:g} days: {plan.history_gb:,.1f} GB in {plan.history_store}, one copy"
    stored = ", ".join(f"{each.name} {each.gb:,.1f}" for each in plan.stored)
    yield f"PostgreSQL beside the history, GB, one copy: {stored}"
    yield f"Quarantine of {demand.quarantine_days:g} days: {plan.quarantine_gb:,.1f} GB in object storage or a folder"
    example = " by EXAMPLE prices" if plan.example_prices else ""
    yield f"Total: {plan.hosts:,} hosts, {plan.cores:,} cores, {plan.cost:,.0f} {plan.currency} a month{example}"
    yield from (f"Note: {note}" for note in plan.notes)
    yield ""
    yield f"Coefficients, measured on: {coefficients.machine}"
    yield table([("NAME", "VALUE", "KIND", "DATE", "SOURCE"), *_coefficient_rows(demand, coefficients)])


def _coefficient_rows(demand: Demand, coefficients: Coefficients) -> Iterator[tuple[str, str, str, str, str]]:
    for name, cost in msgspec.structs.asdict(coefficients.cpu).items():
        assert isinstance(cost, CpuCost)
        value = f"{cost.at(demand.average_kb):.2f} ms CPU a message of {demand.average_kb:g} KB"
        yield name, value, cost.kind, cost.date, cost.source
    for name, each in msgspec.structs.asdict(coefficients.values).items():
        assert isinstance(each, Value)
        yield name.replace("_", " "), f"{each.value:g} {each.unit}", each.kind, each.date, each.source


COMMAND = Command(
    example="mailwarden size --messages-per-day 1M --average-size 30k --retention 30 --peak-factor 3",
    arguments=_arguments,
    run=_run,
)
