"""The capacity model: its units, a case computed by hand, and more of everything for more messages."""

import json
from itertools import pairwise

import msgspec
import pytest

from mailwarden.cli.capacity import CapacityModel, CpuCost, Demand, Prices, read_coefficients, read_prices
from mailwarden.cli.main import main
from mailwarden.errors import MailwardenError
from mailwarden.guard.config import Events
from mailwarden.history import maintenance, senders
from mailwarden.history.clickhouse import ledger
from mailwarden.history.journal.config import JournalSettings

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
    event_days=14,
    event_share=1,
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
        history_bytes=2_000, disk_fill=0.5, spool_disk=10, journal_disk=20, guard_memory=1_024, engine_memory=1_024,
        system_memory=1_024, worker_memory=512, database_cache=0.1, event_bytes=1_000, thread_bytes=100,
        thread_days=10, thread_limit=1_000_000, contact_bytes=100, contact_days=100, contact_share=0.1,
        held_bytes=1_000, database_rest=10, redis_cores=1, redis_memory=2_048,
    )  # fmt: skip
    # 8,640,000 a day are 100 a second, at a peak factor of 2 they are 200. Guard and engines: 200 x 20 ms = 4 cores
    # busy, of 8 at a utilisation of 0.5: two hosts of 4 cores, and one spare.
    demand = changed(
        messages_per_day=8_640_000, peak_factor=2, utilisation=0.5, cores_per_host=4, retention_days=10,
        quarantine_share=0.1, quarantine_days=10, event_days=10, event_share=0.5,
    )  # fmt: skip
    result = plan(demand, coefficients, Prices("EUR", host=1, core=10, memory_gib=100, disk_gb=1_000, object_gb=0))
    assert (result.mean_rate, result.peak_rate, result.cells) == (100, 200, 1)
    edge, abby, guard, database = result.roles
    assert (edge.hosts, edge.cores_per_host) == (2, 2)
    assert (guard.hosts, guard.cores_per_host, guard.cores) == (3, 4, 12)
    assert guard.memory_gib_per_host == 3 + 4 * 0.5
    assert (guard.disk_gb_per_host, abby.disk_gb_per_host) == (10 + 20 / 0.5, 10)  # guard has the journal
    # 200 x 10 ms = 2 busy of 4: four processes of one core each, on a host each, and one spare.
    assert (abby.hosts, abby.cores_per_host) == (5, 2)
    assert result.history_gb == pytest.approx(8_640_000 * 10 * 2_000 / 1e9)  # 172.8 GB
    # Three guards store a million Message-IDs each: 3e6 x 10 x 100 = 3 GB.
    assert {each.name: each.gb for each in result.stored} == pytest.approx({
        "events": 43.2, "keys of history": 0, "conversations": 3, "senders": 8.64, "quarantine rows": 8.64,
        "lists, counters, users": 10,
    })  # fmt: skip
    assert (database.hosts, database.disk_gb_per_host) == (3, 503)  # 10 + (172.8 + 73.48) / 0.5 = 502.56
    assert database.memory_gib_per_host == 21 + 2  # a tenth of 203.08 GB without events, and Redis
    assert database.cores_per_host == 4 + 1  # 200 x 10 ms = 2 busy of 4, and Redis
    assert result.quarantine_gb == pytest.approx(864_000 * 10 * 50_000 / 1e9)
    cores, memory, disk = (
        sum(getattr(role, name) for role in result.roles) for name in ("cores", "memory_gib", "disk_gb")
    )
    assert result.cost == sum(role.hosts for role in result.roles) * 1 + cores * 10 + memory * 100 + disk * 1_000


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
    assert len(plan(changed(messages_per_day=10_000)).roles) == 4
    assert role.disk_gb_per_host > COEFFICIENTS.values.spool_disk.value + 10  # events, senders and so on


def test_the_plan_has_room_for_the_whole_journal():
    assert COEFFICIENTS.values.journal_disk.value >= JournalSettings().max_bytes / 1e9


def test_every_fifty_million_messages_are_a_cell():
    assert [plan(changed(messages_per_day=n)).cells for n in (5e7, 5e7 + 1, 1e9)] == [1, 2, 20]


def role_of(result, name):
    (found,) = (role for role in result.roles if role.name == name)
    return found


def test_postgresql_has_room_for_what_it_stores_beside_clickhouse():
    result = plan(changed(messages_per_day=5e7))
    assert result.history_store == "ClickHouse"
    stored = {each.name: each.gb for each in result.stored}
    assert stored["events"] == pytest.approx(5e7 * 14 * COEFFICIENTS.values.event_bytes.value / 1e9)
    assert stored["keys of history"] == pytest.approx(5e7 * 4 * COEFFICIENTS.values.ledger_bytes.value / 1e9)
    assert role_of(result, "PostgreSQL").disk_gb_per_host > sum(stored.values()) > 500
    without = plan(changed(messages_per_day=5e7, event_share=0))
    assert role_of(without, "PostgreSQL").disk_gb_per_host < role_of(result, "PostgreSQL").disk_gb_per_host - 500


def test_postgresql_stores_events_beside_its_history():
    result, without = (plan(changed(event_share=share)) for share in (1, 0))
    assert result.history_store == "PostgreSQL"
    assert {each.name: each.gb for each in result.stored}["keys of history"] == 0
    assert role_of(result, "PostgreSQL").disk_gb_per_host > role_of(without, "PostgreSQL").disk_gb_per_host + 10


def test_days_and_limits_are_those_of_the_product():
    values = COEFFICIENTS.values
    assert (values.event_days.value, values.event_share.value) == (Events().retention_days, 1)
    assert (Events().judged, Events().sample) == ("all", 1)
    assert values.ledger_days.value == ledger.KEPT.days + 1
    assert values.thread_days.value == maintenance.THREAD_DAYS
    assert values.thread_limit.value == senders.MAX_MESSAGES_TODAY
    assert values.contact_days.value == maintenance.SENDER_DAYS


def test_history_beyond_one_shard_needs_more_cells():
    coefficients = msgspec.structs.replace(
        COEFFICIENTS,
        values=msgspec.structs.replace(
            COEFFICIENTS.values,
            columnar_bytes=msgspec.structs.replace(COEFFICIENTS.values.columnar_bytes, value=500),
            columnar_limit=msgspec.structs.replace(COEFFICIENTS.values.columnar_limit, value=4_000),
        ),
    )
    result = plan(changed(messages_per_day=5e7, retention_days=365), coefficients)  # 9,125 GB
    assert result.cells == 3
    clickhouse = role_of(result, "ClickHouse")
    assert clickhouse.hosts == 2 * 3  # two copies of one shard in a cell
    assert clickhouse.disk_gb_per_host == pytest.approx(40 + 9_125 / 3 / 0.7, abs=1)
    assert any("one ClickHouse shard" in note for note in result.notes)
    assert not any("one ClickHouse shard" in note for note in plan(changed(messages_per_day=5e7)).notes)


def test_the_hosts_of_high_availability_are_in_the_plan():
    result = plan(changed(messages_per_day=1e8))
    assert (result.cells, role_of(result, "edge").hosts, role_of(result, "PostgreSQL").hosts) == (2, 4, 6)
    assert all(any(name in note for note in result.notes) for name in ("etcd", "Sentinel", "Keeper", "keepalived"))
    alone = plan(changed(messages_per_day=1e8, hosts_lost=0))
    assert [role.name for role in alone.roles] == ["abby", "guard and engines", "PostgreSQL", "ClickHouse"]
    assert not any("Sentinel" in note or "Keeper" in note for note in alone.notes)
    assert role_of(alone, "PostgreSQL").memory_gib_per_host < role_of(result, "PostgreSQL").memory_gib_per_host
    assert not any("Keeper" in note for note in plan().notes)  # history is in PostgreSQL


@pytest.mark.parametrize(("kilobytes", "noted"), [(50, False), (51, True), (101, True)])
def test_sizes_above_the_measured_ones_are_called_extrapolated(kilobytes, noted):
    assert any("extrapolated" in note for note in plan(changed(average_kb=kilobytes)).notes) is noted


def test_the_rate_is_the_inverse_of_the_cores():
    model = CapacityModel(DEMAND, COEFFICIENTS, FREE)
    need = model.cores(COEFFICIENTS.cpu.guard, COEFFICIENTS.cpu.engines)
    assert model.rate(need, COEFFICIENTS.cpu.guard, COEFFICIENTS.cpu.engines) == pytest.approx(model.cell_peak)
    assert model.rate(2 * need, COEFFICIENTS.cpu.guard, COEFFICIENTS.cpu.engines) == pytest.approx(2 * model.cell_peak)


def test_long_history_goes_to_clickhouse_and_the_plan_says_so():
    result = plan(changed(messages_per_day=5e7, retention_days=365))
    assert result.history_store == "ClickHouse"
    assert result.history_gb == pytest.approx(5e7 * 365 * COEFFICIENTS.values.columnar_bytes.value / 1e9)
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
    "words",
    [
        ["0"],
        ["many"],
        ["-5"],
        ["1M", "--utilisation", "0"],
        ["1M", "--peak-factor", "0.5"],
        ["1M", "--event-retention", "0"],
        ["1M", "--event-share", "2"],
    ],
)
def test_a_number_that_makes_no_sense_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        main(["size", "--messages-per-day", *words])
    assert "not a number" in capsys.readouterr().err


@pytest.mark.parametrize("cores", ["0", "1", "-7", "1025", "1.5", "²", "many", "9" * 5_000])
def test_an_impossible_number_of_cores_is_refused(cores, capsys):
    with pytest.raises(SystemExit):
        main(["size", "--messages-per-day", "1M", f"--cores-per-host={cores}"])
    assert "is not a whole number from 2 to 1024" in capsys.readouterr().err


def test_a_mistake_in_the_prices_is_named(tmp_path, capsys):
    prices = tmp_path / "prices.yml"
    prices.write_text("currency: EUR\nhost: -1\ncore: 1\nmemoryGib: 1\ndiskGb: 1\nobjectGb: 1\n")
    assert main(["size", "--messages-per-day", "1M", "--prices", str(prices)]) == 2
    assert "host" in capsys.readouterr().err
    with pytest.raises(MailwardenError):
        read_prices(tmp_path / "missing.yml")
