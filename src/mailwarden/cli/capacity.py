"""The capacity model: hosts, cores, memory, disks and cost of a number of messages a day, by measured coefficients."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mailwarden.settings.reader import read

DATA = Path(__file__).with_name("capacity_data")
SECONDS_A_DAY = 86_400
SMALL_KB, LARGE_KB = 5.0, 50.0
MIN_DATABASE_MEMORY, MAX_DATABASE_MEMORY = 4, 256  # GiB

EVENTS = "events"

Positive = Annotated[float, Meta(gt=0)]
Recorded = Annotated[str, Meta(pattern=r"^20\d\d-\d\d(-\d\d)?$", description="Day or month.")]
Kind = Literal["measured", "trial", "default", "assumed"]


class CpuCost(Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds of CPU a message, at two sizes."""

    at5k: Positive
    at50k: Positive
    source: str
    date: Recorded
    kind: Kind

    def at(self, kilobytes: float) -> float:
        """Return the milliseconds for a size: a line through both, and never less than a tenth of the smaller."""
        slope = (self.at50k - self.at5k) / (LARGE_KB - SMALL_KB)
        return max(self.at5k / 10, self.at5k + slope * (kilobytes - SMALL_KB))


class Value(Struct, frozen=True, forbid_unknown_fields=True):
    value: Positive
    unit: str
    source: str
    date: Recorded
    kind: Kind


class CpuCosts(Struct, frozen=True, forbid_unknown_fields=True):
    abby: CpuCost
    guard: CpuCost
    engines: CpuCost
    database: CpuCost


class Values(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    peak_factor: Value
    utilisation: Value
    abby_memory: Value
    guard_memory: Value
    worker_memory: Value
    engine_memory: Value
    system_memory: Value
    database_cache: Value
    history_bytes: Value
    columnar_bytes: Value
    history_limit: Value
    columnar_limit: Value
    event_bytes: Value
    event_days: Value
    event_share: Value
    ledger_bytes: Value
    ledger_days: Value
    thread_bytes: Value
    thread_days: Value
    thread_limit: Value
    contact_bytes: Value
    contact_days: Value
    contact_share: Value
    held_bytes: Value
    database_rest: Value
    redis_memory: Value
    redis_cores: Value
    keeper_memory: Value
    disk_fill: Value
    quarantine_share: Value
    spool_disk: Value
    journal_disk: Value
    cell_messages: Value


class Coefficients(Struct, frozen=True, forbid_unknown_fields=True):
    machine: str
    cpu: CpuCosts
    values: Values


class Prices(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Prices a month."""

    currency: str
    host: Annotated[float, Meta(ge=0)]
    core: Annotated[float, Meta(ge=0)]
    memory_gib: Annotated[float, Meta(ge=0)]
    disk_gb: Annotated[float, Meta(ge=0)]
    object_gb: Annotated[float, Meta(ge=0)]
    example: bool = False


class Demand(Struct, frozen=True, rename="camel"):
    """The load of a deployment and its reserve: `hosts_lost` hosts of each role in a cell may fail at the peak."""

    messages_per_day: float
    average_kb: float
    retention_days: float
    quarantine_days: float
    peak_factor: float
    utilisation: float
    quarantine_share: float
    event_days: float
    event_share: float  # of the messages that get an event
    hosts_lost: int = 1
    cores_per_host: int = 16
    core_speed: float = 1.0  # of a core of the deployment, by one of the measured machine


class Role(Struct, frozen=True, rename="camel"):
    """The hosts of one role in all cells."""

    name: str
    hosts: int
    cores_per_host: int
    memory_gib_per_host: int
    disk_gb_per_host: int
    reason: str

    @property
    def cores(self) -> int:
        return self.hosts * self.cores_per_host

    @property
    def memory_gib(self) -> int:
        return self.hosts * self.memory_gib_per_host

    @property
    def disk_gb(self) -> int:
        return self.hosts * self.disk_gb_per_host


class Stored(Struct, frozen=True, rename="camel"):
    """Data in PostgreSQL beside the history, one copy in all cells."""

    name: str
    gb: float


class Plan(Struct, frozen=True, rename="camel"):
    """The result of the model."""

    cells: int
    mean_rate: float
    peak_rate: float
    history_store: Literal["PostgreSQL", "ClickHouse"]
    history_gb: float
    stored: tuple["Stored", ...]
    quarantine_gb: float
    roles: tuple[Role, ...]
    cost: float
    currency: str
    example_prices: bool
    notes: tuple[str, ...]

    @property
    def hosts(self) -> int:
        return sum(role.hosts for role in self.roles)

    @property
    def cores(self) -> int:
        return sum(role.cores for role in self.roles)


def read_coefficients(path: Path | None = None) -> Coefficients:
    return read(path or DATA / "coefficients.yml", Coefficients)


def read_prices(path: Path | None = None) -> Prices:
    return read(path or DATA / "prices.yml", Prices)


class CapacityModel:
    """Computes one cell, and multiplies it by the number of cells."""

    def __init__(self, demand: Demand, coefficients: Coefficients, prices: Prices) -> None:
        self._demand = demand
        self._cpu = coefficients.cpu
        self._values = coefficients.values
        self._prices = prices
        self._full_cells = math.ceil(demand.messages_per_day / self._values.cell_messages.value)
        self.cells = max(self._full_cells, self._cells_of_history())
        self._cell_messages = demand.messages_per_day / self.cells
        self.cell_peak = self._cell_messages / SECONDS_A_DAY * demand.peak_factor

    def plan(self) -> Plan:
        demand = self._demand
        roles = self._one_host() or (*self._edge(), self._abby(), self._guard(), *self._databases())
        quarantine_gb = (
            demand.messages_per_day * demand.quarantine_share * demand.average_kb * 1_000 * demand.quarantine_days / 1e9
        )
        return Plan(
            cells=self.cells,
            mean_rate=demand.messages_per_day / SECONDS_A_DAY,
            peak_rate=self.cell_peak * self.cells,
            history_store="ClickHouse" if self._columnar else "PostgreSQL",
            history_gb=self._history_gb * self.cells,
            stored=tuple(Stored(name, gb * self.cells) for name, gb in self._stored().items()),
            quarantine_gb=quarantine_gb,
            roles=roles,
            cost=self._cost(roles, quarantine_gb),
            currency=self._prices.currency,
            example_prices=self._prices.example,
            notes=tuple(self._notes()),
        )

    def cores(self, *costs: CpuCost) -> float:
        """Return the cores of one cell that are busy at the peak with these costs, and room beside them."""
        milliseconds = sum(cost.at(self._demand.average_kb) for cost in costs)
        return self.cell_peak * milliseconds / 1_000 / self._demand.core_speed / self._demand.utilisation

    def rate(self, cores: float, *costs: CpuCost) -> float:
        """Return the messages a second for which these cores are enough: the inverse of `cores`."""
        return self.cell_peak * cores / self.cores(*costs)

    def _cells_of_history(self) -> int:
        """Return the cells whose history fits: a cell has one ClickHouse shard, and a shard has a largest size."""
        messages, values = self._demand.messages_per_day * self._demand.retention_days, self._values
        if messages / self._full_cells * values.history_bytes.value / 1e9 <= values.history_limit.value:
            return 1
        return math.ceil(messages * values.columnar_bytes.value / 1e9 / values.columnar_limit.value)

    @property
    def _in_postgresql(self) -> float:
        """Return the history of one cell in PostgreSQL, in GB."""
        return self._cell_messages * self._demand.retention_days * self._values.history_bytes.value / 1e9

    @property
    def _columnar(self) -> bool:
        return self._in_postgresql > self._values.history_limit.value

    @property
    def _history_gb(self) -> float:
        if not self._columnar:
            return self._in_postgresql
        return self._cell_messages * self._demand.retention_days * self._values.columnar_bytes.value / 1e9

    def _stored(self) -> dict[str, float]:
        """Return the GB in the PostgreSQL of one cell beside the history, by name."""
        demand, values, messages = self._demand, self._values, self._cell_messages
        threads = min(messages, values.thread_limit.value * self._guard_hosts)
        rows = {
            EVENTS: messages * demand.event_share * demand.event_days * values.event_bytes.value,
            "keys of history": messages * values.ledger_days.value * values.ledger_bytes.value * self._columnar,
            "conversations": threads * values.thread_days.value * values.thread_bytes.value,
            "senders": messages * values.contact_share.value * values.contact_days.value * values.contact_bytes.value,
            "quarantine rows": messages * demand.quarantine_share * demand.quarantine_days * values.held_bytes.value,
        }
        rest = {"lists, counters, users": values.database_rest.value}
        return {name: size / 1e9 for name, size in rows.items()} | rest

    @property
    def _cached_gb(self) -> float:
        """Return the GB in PostgreSQL that are searched; events are read once, soon after they are written."""
        stored = self._stored()
        return sum(stored.values()) - stored[EVENTS] + (0.0 if self._columnar else self._history_gb)

    @property
    def _guard_hosts(self) -> int:
        """Return the hosts with a guard in one cell."""
        return 1 if self._one_host_is_enough else self._guard().hosts // self.cells

    @property
    def _one_host_is_enough(self) -> bool:
        return not self._demand.hosts_lost and self.cells == 1 and self._need_of_all <= self._demand.cores_per_host

    @property
    def _need_of_all(self) -> float:
        return self.cores(self._cpu.abby, self._cpu.guard, self._cpu.engines, self._cpu.database)

    def _one_host(self) -> tuple[Role, ...]:
        """Return one host for everything, if no host may be lost and one is enough."""
        if not self._one_host_is_enough:
            return ()
        need, stored = self._need_of_all, sum(self._stored().values())
        cores, data = max(2, math.ceil(need)), self._history_gb + stored + self._values.journal_disk.value
        reason = f"{need:.2f} cores for the peak, {stored:,.0f} GB beside the history; no host may be lost"
        memory = self._scan_memory(cores) + self._database_memory(self._cached_gb)
        return (Role("everything", 1, cores, memory, self._disk(data), reason),)

    def _edge(self) -> Iterator[Role]:
        """Yield HAProxy and keepalived in front of abby and of guard's SMTP, if a host may be lost."""
        if lost := self._demand.hosts_lost:
            reason = f"HAProxy and keepalived: one address for abby and SMTP; hosts of a cell: 1 busy, {lost} spare"
            memory = self._gib(self._values.system_memory.value) + 1
            yield Role("edge", (1 + lost) * self.cells, 2, memory, self._disk(0.0), reason)

    def _abby(self) -> Role:
        """Return the hosts of abby: one process each, whose event loop uses one core, and one core for the rest."""
        memory = self._gib(self._values.abby_memory.value + self._values.system_memory.value)
        need = self.cores(self._cpu.abby)
        busy = max(1, math.ceil(need))
        return Role("abby", self._hosts(busy), 2, memory, self._disk(0.0), self._because(need, busy))

    def _guard(self) -> Role:
        need = self.cores(self._cpu.guard, self._cpu.engines)
        cores = self._host_cores(need)
        busy = max(1, math.ceil(need / cores))
        memory, disk = self._scan_memory(cores), self._disk(self._values.journal_disk.value)
        return Role("guard and engines", self._hosts(busy), cores, memory, disk, self._because(need, busy))

    def _databases(self) -> Iterator[Role]:
        """Yield PostgreSQL with a majority after a loss, and ClickHouse where history is too large, for all cells."""
        stored = sum(self._stored().values())
        data = stored + (0.0 if self._columnar else self._history_gb)
        need = self.cores(self._cpu.database)
        members, copies = 1 + 2 * self._demand.hosts_lost, 1 + self._demand.hosts_lost
        cores, memory = max(2, math.ceil(need)), self._database_memory(self._cached_gb)
        where = "in ClickHouse" if self._columnar else f"of {self._history_gb:,.0f} GB"
        reason = f"{need:.2f} cores for the peak of a cell, history {where}, {stored:,.0f} GB beside it"
        if self._demand.hosts_lost:
            cores += math.ceil(self._values.redis_cores.value)
            memory += self._gib(self._values.redis_memory.value + self._columnar * self._values.keeper_memory.value)
            keeper = ", Keeper" if self._columnar else ""
            reason += f"; replicas: {members - 1}; beside it etcd, Redis, Sentinel{keeper}"
        yield Role("PostgreSQL", members * self.cells, cores, memory, self._disk(data), reason)
        if self._columnar:
            history = self._history_gb
            reason = f"{history:,.0f} GB of history in a cell, one shard; copies: {copies}"
            yield Role(
                "ClickHouse", copies * self.cells, 8, self._database_memory(history), self._disk(history), reason
            )

    def _hosts(self, busy: int) -> int:
        """Return the hosts of all cells: those that are busy at the peak, and the spare ones."""
        return (busy + self._demand.hosts_lost) * self.cells

    def _because(self, need: float, busy: int) -> str:
        spare = self._demand.hosts_lost
        return f"{need:.2f} cores for the peak of a cell; hosts of a cell: {busy} busy, {spare} spare"

    def _host_cores(self, need: float) -> int:
        """Return the cores of a host: fewer than the largest host has, if one host is enough."""
        return min(self._demand.cores_per_host, max(2, math.ceil(need)))

    def _scan_memory(self, cores: int) -> int:
        values = self._values
        fixed = values.guard_memory.value + values.engine_memory.value + values.system_memory.value
        return self._gib(fixed + cores * values.worker_memory.value)

    def _database_memory(self, data_gb: float) -> int:
        wanted = math.ceil(data_gb * self._values.database_cache.value)
        return min(MAX_DATABASE_MEMORY, max(MIN_DATABASE_MEMORY, wanted))

    def _disk(self, data_gb: float) -> int:
        return math.ceil(self._values.spool_disk.value + data_gb / self._values.disk_fill.value)

    @staticmethod
    def _gib(mebibytes: float) -> int:
        return math.ceil(mebibytes / 1_024)

    def _cost(self, roles: tuple[Role, ...], quarantine_gb: float) -> float:
        prices = self._prices
        hosts = sum(
            role.hosts * prices.host
            + role.cores * prices.core
            + role.memory_gib * prices.memory_gib
            + role.disk_gb * prices.disk_gb
            for role in roles
        )
        return hosts + quarantine_gb * prices.object_gb

    def _notes(self) -> Iterator[str]:
        if self._prices.example:
            yield "The prices are examples: pass your own with --prices FILE."
        if self._columnar:
            yield "History in ClickHouse is a setting, and searches are slower there: see docs/operating.md."
        if self.cells > self._full_cells:
            limit = self._values.columnar_limit.value
            yield f"Cells beyond those for the messages: a cell has one ClickHouse shard, of at most {limit:,.0f} GB."
        if self.cells > 1:
            yield "Each cell is a deployment of its own, and a tenant belongs to one cell: see docs/cells.md."
        if self._demand.hosts_lost:
            yield from self._notes_of_availability()
        if self._demand.average_kb > LARGE_KB:
            yield "The CPU of messages above 50 KB is extrapolated: measure your own with `make bench-growth`."

    def _notes_of_availability(self) -> Iterator[str]:
        """Yield which software survives the loss of a host, and where the plan puts it."""
        yield "PostgreSQL fails over with Patroni and etcd on its hosts: see docs/high-availability.md."
        yield "Redis with Sentinel for the statistics of learning runs on the hosts of PostgreSQL, beside etcd."
        if self._columnar:
            yield "The replicas of ClickHouse need a majority of Keepers, which run on the hosts of PostgreSQL, too."
        yield "The edge hosts share one address by keepalived. Hosts of abby and guard also run PgBouncer and HAProxy."
