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

Positive = Annotated[float, Meta(gt=0)]
Recorded = Annotated[str, Meta(pattern=r"^20\d\d-\d\d(-\d\d)?$", description="Day or month.")]
Kind = Literal["measured", "trial", "assumed"]


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
    disk_fill: Value
    quarantine_share: Value
    spool_disk: Value
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


class Plan(Struct, frozen=True, rename="camel"):
    """The result of the model."""

    cells: int
    mean_rate: float
    peak_rate: float
    history_store: Literal["PostgreSQL", "ClickHouse"]
    history_gb: float
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
        self.cells = math.ceil(demand.messages_per_day / self._values.cell_messages.value)
        self._cell_messages = demand.messages_per_day / self.cells
        self.cell_peak = self._cell_messages / SECONDS_A_DAY * demand.peak_factor

    def plan(self) -> Plan:
        demand = self._demand
        roles = self._one_host() or (self._abby(), self._guard(), *self._databases())
        quarantine_gb = (
            demand.messages_per_day * demand.quarantine_share * demand.average_kb * 1_000 * demand.quarantine_days / 1e9
        )
        return Plan(
            cells=self.cells,
            mean_rate=demand.messages_per_day / SECONDS_A_DAY,
            peak_rate=self.cell_peak * self.cells,
            history_store="ClickHouse" if self._columnar else "PostgreSQL",
            history_gb=self._history_gb * self.cells,
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

    def _one_host(self) -> tuple[Role, ...]:
        """Return one host for everything, if no host may be lost and one is enough."""
        cpu = self._cpu
        need = self.cores(cpu.abby, cpu.guard, cpu.engines, cpu.database)
        if self._demand.hosts_lost or self.cells > 1 or need > self._demand.cores_per_host:
            return ()
        cores = max(2, math.ceil(need))
        memory = self._scan_memory(cores) + self._database_memory(self._history_gb)
        disk = self._disk(self._history_gb)
        return (Role("everything", 1, cores, memory, disk, f"{need:.2f} cores for the peak; no host may be lost"),)

    def _abby(self) -> Role:
        memory = self._gib(self._values.abby_memory.value + self._values.system_memory.value)
        return self._role("abby", self.cores(self._cpu.abby), memory, 0.0, smallest=2)

    def _guard(self) -> Role:
        need = self.cores(self._cpu.guard, self._cpu.engines)
        cores = self._host_cores(need)
        return self._role("guard and engines", need, self._scan_memory(cores), 0.0)

    def _databases(self) -> Iterator[Role]:
        """Yield PostgreSQL with a majority after a loss, and ClickHouse where history is too large, for all cells."""
        history = 0.0 if self._columnar else self._history_gb
        need = self.cores(self._cpu.database)
        members, copies = 1 + 2 * self._demand.hosts_lost, 1 + self._demand.hosts_lost
        memory = self._database_memory(history)
        cores = max(2, math.ceil(need))
        reason = f"{need:.2f} cores for the peak of a cell, {history:,.0f} GB of history; replicas: {members - 1}"
        yield Role("PostgreSQL", members * self.cells, cores, memory, self._disk(history), reason)
        if self._columnar:
            shards = max(1, math.ceil(self._history_gb / self._values.history_limit.value))
            each = self._history_gb / shards
            reason = f"{self._history_gb:,.0f} GB of history in a cell; shards: {shards}, copies: {copies}"
            hosts = shards * copies * self.cells
            yield Role("ClickHouse", hosts, 8, self._database_memory(each), self._disk(each), reason)

    def _role(self, name: str, need: float, memory: int, data_gb: float, smallest: int = 1) -> Role:
        cores = max(smallest, self._host_cores(need))
        busy = max(1, math.ceil(need / cores))
        spare = self._demand.hosts_lost
        reason = f"{need:.2f} cores for the peak of a cell; hosts of a cell: {busy} busy, {spare} spare"
        return Role(name, (busy + spare) * self.cells, cores, memory, self._disk(data_gb), reason)

    def _host_cores(self, need: float) -> int:
        """Return the cores of a host: fewer than the largest host has, if one host is enough."""
        return min(self._demand.cores_per_host, max(2, math.ceil(need)))

    def _scan_memory(self, cores: int) -> int:
        values = self._values
        fixed = values.guard_memory.value + values.engine_memory.value + values.system_memory.value
        return self._gib(fixed + cores * values.worker_memory.value)

    def _database_memory(self, history_gb: float) -> int:
        wanted = math.ceil(history_gb * self._values.database_cache.value)
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
        if self.cells > 1:
            yield "Each cell is a deployment of its own, and a tenant belongs to one cell: see docs/cells.md."
        if self._demand.hosts_lost and not self._one_host():
            yield "PostgreSQL fails over with Patroni and etcd on its hosts: see docs/high-availability.md."
        if self._demand.average_kb > 2 * LARGE_KB:
            yield "The CPU of messages above 50 KB is extrapolated: measure your own with `make bench-growth`."
