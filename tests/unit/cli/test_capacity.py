"""The capacity model: its units, a case computed by hand, and more of everything for more messages."""

import json
from itertools import pairwise

import msgspec
import pytest

from mailwarden.cli.capacity import CapacityModel, CpuCost, Demand, Prices, read_coefficients, read_prices
from mailwarden.cli.main import main
from mailwarden.errors import MailwardenError

COEFFICIENTS = read_coefficients()
FREE = Prices("EUR", 0, 0, 0, 0, 0)
DEMAND = Demand(
    messages_per_day=1_000_000,
    average_kb=50,
    retention_days=30,
    quarantine_days=30,
    peak_factor=3,
    utilisation=0.6,
    quarantine_share=0.02,
)


def changed(**changes):
    return msgspec.structs.replace(DEMAND, **changes)


def plan(demand=DEMAND, coefficients=COEFFICIENTS, prices=FREE):
    return CapacityModel(demand, coefficients, prices).plan()


def made(**values):
    """Return the shipped coefficients with round numbers, so that a case can be computed by hand."""
    cost = CpuCost(at5k=10, at50k=10, source="made", date="2026-01-01", kind="assumed")
    rounded = {
        name: msgspec.structs.replace(getattr(COEFFICIENTS.values, name), value=value) for name, value in values.items()
    }
    costs = msgspec.structs.replace(COEFFICIENTS.cpu, abby=cost, guard=cost, engines=cost, database=cost)
    return msgspec.structs.replace(
        COEFFICIENTS, cpu=costs, values=msgspec.structs.replace(COEFFICIENTS.values, **rounded)
    )


def test_a_case_computed_by_hand():
    coefficients = made(
        history_bytes=2_000, disk_fill=0.5, spool_disk=10, guard_memory=1_024, engine_memory=1_024,
        system_memory=1_024, worker_memory=512, database_cache=0.1,
    )  # fmt: skip
    # 8,640,000 a day are 100 a second, at a peak factor of 2 they are 200. Guard and engines: 200 x 20 ms = 4 cores
    # busy, of 8 at a utilisation of 0.5: two hosts of 4 cores, and one spare.
    demand = changed(
        messages_per_day=8_640_000, peak_factor=2, utilisation=0.5, cores_per_host=4, retention_days=10,
        quarantine_share=0.1, quarantine_days=10,
    )  # fmt: skip
    result = plan(demand, coefficients, Prices("EUR", host=1, core=10, memory_gib=100, disk_gb=1_000, object_gb=0))
    assert (result.mean_rate, result.peak_rate, result.cells) == (100, 200, 1)
    abby, guard, database = result.roles
    assert (guard.hosts, guard.cores_per_host, guard.cores) == (3, 4, 12)
    assert guard.memory_gib_per_host == 3 + 4 * 0.5
    assert (abby.hosts, abby.cores_per_host) == (2, 4)  # 200 x 10 ms = 2 busy of 4, and one spare
    assert result.history_gb == pytest.approx(8_640_000 * 10 * 2_000 / 1e9)  # 172.8 GB
    assert (database.hosts, database.disk_gb_per_host) == (3, 356)  # 10 + 172.8 / 0.5 = 355.6
    assert database.memory_gib_per_host == 18
    assert result.quarantine_gb == pytest.approx(864_000 * 10 * 50_000 / 1e9)
    cores, memory, disk = (
        sum(getattr(role, name) for role in result.roles) for name in ("cores", "memory_gib", "disk_gb")
    )
    assert result.cost == 8 * 1 + cores * 10 + memory * 100 + disk * 1_000


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("messages_per_day", [1e4, 1e6, 1e7, 5e7, 1e8, 1e9]),
        ("average_kb", [5, 50, 500]),
        ("peak_factor", [1, 3, 10]),
        ("hosts_lost", [1, 2, 3]),
    ],
)
def test_more_needs_more(name, values):
    plans = [
        plan(
            changed(messages_per_day=2e7, **{name: value}) if name != "messages_per_day" else changed(**{name: value}),
            prices=read_prices(),
        )
        for value in values
    ]
    for less, more in pairwise(plans):
        assert more.cores >= less.cores
        assert more.cost > less.cost


def test_faster_cores_and_higher_utilisation_need_fewer():
    usual = plan(changed(messages_per_day=5e7)).cores
    assert plan(changed(messages_per_day=5e7, core_speed=2.0)).cores < usual
    assert plan(changed(messages_per_day=5e7, utilisation=0.9)).cores < usual


def test_cpu_is_a_line_through_both_sizes():
    cost = CpuCost(at5k=10, at50k=28, source="made", date="2026-01-01", kind="measured")
    assert [cost.at(kb) for kb in (5, 50, 27.5, 95)] == pytest.approx([10, 28, 19, 46])
    assert cost.at(0.1) > 0
    assert msgspec.structs.replace(cost, at50k=1).at(500) == 1  # never nothing


def test_one_host_is_enough_if_none_may_be_lost():
    (role,) = plan(changed(messages_per_day=10_000, hosts_lost=0)).roles
    assert (role.name, role.hosts) == ("everything", 1)
    assert len(plan(changed(messages_per_day=10_000)).roles) == 3


def test_every_fifty_million_messages_are_a_cell():
    assert [plan(changed(messages_per_day=n)).cells for n in (5e7, 5e7 + 1, 1e9)] == [1, 2, 20]


def test_long_history_goes_to_clickhouse_and_the_plan_says_so():
    result = plan(changed(messages_per_day=5e7, retention_days=365))
    assert result.history_store == "ClickHouse"
    assert result.history_gb == pytest.approx(5e7 * 365 * 435 / 1e9)
    assert any("History in ClickHouse" in note for note in result.notes)
    assert plan(changed(messages_per_day=1e6)).history_store == "PostgreSQL"


def test_every_coefficient_has_a_source_and_a_date():
    everything = [
        *msgspec.structs.asdict(COEFFICIENTS.cpu).values(),
        *msgspec.structs.asdict(COEFFICIENTS.values).values(),
    ]
    assert all(each.source and each.date >= "2026" for each in everything)


def test_the_command_prints_the_plan_and_its_coefficients(capsys):
    assert main(["size", "--messages-per-day", "50M", "--average-size", "30k", "--retention", "30"]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("50,000,000 messages", "EXAMPLE prices", "measured", "bench.scan"))


def test_the_command_prints_json(capsys):
    assert main(["size", "--messages-per-day", "1M", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["plan"]["cells"] == 1
    assert printed["totals"]["hosts"] == sum(role["hosts"] for role in printed["plan"]["roles"])


@pytest.mark.parametrize(
    "words", [["0"], ["many"], ["-5"], ["1M", "--utilisation", "0"], ["1M", "--peak-factor", "0.5"]]
)
def test_a_number_that_makes_no_sense_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        main(["size", "--messages-per-day", *words])
    assert "not a number" in capsys.readouterr().err


def test_a_mistake_in_the_prices_is_named(tmp_path, capsys):
    prices = tmp_path / "prices.yml"
    prices.write_text("currency: EUR\nhost: -1\ncore: 1\nmemoryGib: 1\ndiskGb: 1\nobjectGb: 1\n")
    assert main(["size", "--messages-per-day", "1M", "--prices", str(prices)]) == 2
    assert "host" in capsys.readouterr().err
    with pytest.raises(MailwardenError):
        read_prices(tmp_path / "missing.yml")
