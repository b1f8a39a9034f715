"""The hosts of the fleet and their servers: two edges, abbys, guards with engines, databases, Redis and Postfix.

Every host is a network namespace with a disk of its own. Shared by all: the machine's clock and cores, and the folder
of the quarantine, which stands for a shared file system.
"""

import functools
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.component import Component
from tests.fleet.edge import ABBY, HTTPS, SMTP, EdgeProxy, FleetPostfix, Keepalived
from tests.fleet.namespaces import HERE, Host, run
from tests.fleet.schedule import kind_of
from workshop.rig.clamd import Clamd
from workshop.rig.clickhouse import Clickhouse, Zookeeper
from workshop.rig.dns import DkimKey, Dns
from workshop.rig.folders import make_folder
from workshop.rig.patroni import DatabaseHost, Etcd, Haproxy, is_protected, primary_of
from workshop.rig.pgbouncer import Pgbouncer
from workshop.rig.postgresql import OWNER, psql
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.product import Service
from workshop.rig.programs import find_postgresql
from workshop.rig.rspamd import PASSWORD, Rspamd
from workshop.rig.sentinel import SERVICE, SHIPPED, RedisNode, SentinelTrio, redis_text, sentinel_text
from workshop.rig.zones import ZONES

NETWORK, BITS, MTU = "198.18.0.0/24", 24, 9_000
CLIENT, SHARED = "198.18.0.1", "198.18.0.10"
GUARD, REDIS, SENTINEL, ZOOKEEPER = 9785, 6379, 26379, 2181
DATABASE = "mailwarden"
DISKS = {"lb": 32, "abby": 64, "guard": 192, "db": 768, "redis": 64, "mx": 256, "ch": 512}  # mebibytes
VAULT_MEBIBYTES = 512
INIT_SECONDS = 120.0
ENGINE_MILLISECONDS = 3_000  # shorter than a pause: the analysis of a paused engine stays unfinished
NO_REDIS = "127.0.0.1:1"
STATEMENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How many hosts of a kind there are."""

    guards: int = 4
    redis: int = 3
    clickhouse: int = 2

    def hosts(self) -> list[Host]:
        counts = {"lb": 2, "abby": 2, "guard": self.guards, "db": 3, "redis": self.redis, "mx": 1}
        counts["ch"] = self.clickhouse
        return [
            Host(f"{kind}{number}", f"198.18.0.{10 * (place + 2) + number}")
            for place, (kind, count) in enumerate(counts.items())
            for number in range(1, count + 1)
        ]


@dataclass(frozen=True, slots=True)
class HostEngines:
    """The engines on the host of a guard."""

    dns: Dns
    clamd: Clamd
    rspamd: Rspamd


@dataclass
class Fleet:
    """All components by name; `create` makes the hosts, `start` the servers."""

    root: Path
    components: dict[str, Component] = field(default_factory=dict)
    databases: list[DatabaseHost] = field(default_factory=list)
    abbys: list[Service] = field(default_factory=list)
    guards: list[Service] = field(default_factory=list)
    redis: list[RedisNode] = field(default_factory=list)
    sentinels: list[RedisNode] = field(default_factory=list)
    haproxys: dict[str, Haproxy] = field(default_factory=dict)
    key: DkimKey = field(default_factory=DkimKey)
    engines: dict[str, HostEngines] = field(default_factory=dict)
    postfix: FleetPostfix | None = None
    clickhouses: list[Clickhouse] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Component]:
        return [each for name, each in self.components.items() if kind_of(name) == kind]

    @property
    def vault(self) -> Path:
        return self.root / "vault"

    @property
    def url(self) -> str:
        return f"https://{SHARED}:{HTTPS}"

    @property
    def ca(self) -> Path:
        return self.root / "config" / "tls" / "ca.crt"

    @property
    def token(self) -> str:
        return (self.root / "config" / "token").read_text("ascii").strip()

    @property
    def primary_url(self) -> str:
        """Return the address of the primary's database, for the test itself."""
        primary = primary_of(self.databases)
        if primary is None:
            raise RigError("no database is the primary")
        return f"postgresql://{OWNER}@{primary.address}/{DATABASE}"

    def execute(self, statement: str, database: str = DATABASE) -> str:
        """Run a statement as the superuser on the primary, through HAProxy of an abby."""
        abby = self.of_kind("abby")[0]
        port = self.haproxys[abby.name].port
        return abby.host.run(lambda: psql(find_postgresql(), port, statement, database))

    def kill(self) -> None:
        for component in self.components.values():
            component.empty()
            component.kill()


def create_hosts(root: Path, size: Size, milliseconds: float) -> tuple[Fleet, ServerProcess]:
    """Create every host, and join them by the switch."""
    fleet = Fleet(root)
    run("mount", "-t", "tmpfs", "-o", "mode=755,size=16m", "tmpfs", "/run")
    for host in size.hosts():
        fleet.components[host.name] = Component.create(host, root, DISKS[kind_of(host.name)])
    words = [sys.executable, "-m", "tests.fleet.switch", str(milliseconds), HERE, *fleet.components]
    switch = ServerProcess(
        "switch", words, root / "switch.log", _has_device, environment={"PYTHONPATH": str(Path.cwd())}
    )
    switch.start()
    run("ip", "link", "set", "eth0", "mtu", str(MTU), "up")
    run("ip", "addr", "add", f"{CLIENT}/{BITS}", "dev", "eth0")
    for component in fleet.components.values():
        component.host.connect("eth0", BITS, MTU)
    return fleet, switch


def _has_device() -> bool:
    return any(name == "eth0" for _, name in socket.if_nameindex())


def add_databases(fleet: Fleet) -> None:
    """Add three hosts with etcd, Patroni and PostgreSQL, and the ZooKeepers of ClickHouse if there is one."""
    parts = fleet.of_kind("db")
    members = {part.name: part.host.address for part in parts}
    addresses = [f"{address}:2379" for address in members.values()]
    zookeepers: list[Zookeeper] = []
    for part in parts:
        etcd = Etcd(part.disk.folder / "etcd", part.name, members)
        folder = part.disk.folder / "patroni"
        database = DatabaseHost(part.name, folder, addresses, host=part.host.address, network=NETWORK)
        part.stages = [[etcd], [database]]
        part.well = lambda: is_protected(fleet.databases) and all(each.answers() for each in zookeepers)
        fleet.databases.append(database)
        if fleet.of_kind("ch"):
            hosts = tuple(members.values())
            zookeepers.append(Zookeeper(part.disk.folder / "zookeeper", part.host.address, ZOOKEEPER, members=hosts))
            part.stages[0].append(zookeepers[-1])


def add_redis(fleet: Fleet) -> None:
    """Add three hosts with Redis and Sentinel."""
    parts = fleet.of_kind("redis")
    for part in parts:
        first = part is parts[0]
        text = redis_text("" if first else f"{parts[0].host.address} {REDIS}") + "\nappendonly yes"
        folder, address = part.disk.folder, part.host.address
        redis = RedisNode("redis", folder / "redis", REDIS, text, host=address)
        watched = sentinel_text(f"{parts[0].host.address} {REDIS}")
        sentinel = RedisNode("sentinel", folder / "sentinel", SENTINEL, watched, sentinel=True, host=address)
        part.stages = [[redis], [sentinel]]
        part.well = lambda: SentinelTrio(fleet.root, tuple(fleet.redis), tuple(fleet.sentinels)).has_replica()
        fleet.redis.append(redis)
        fleet.sentinels.append(sentinel)


def add_pooler(fleet: Fleet, part: Component) -> str:
    """Add HAProxy and PgBouncer to a host of the product, and return the address of the database there."""
    haproxy = Haproxy(part.folder / "haproxy", fleet.databases)
    pgbouncer = Pgbouncer(part.folder / "pgbouncer", haproxy.port, server_connections=6)
    part.stages.append([haproxy, pgbouncer])
    fleet.haproxys[part.name] = haproxy
    return pgbouncer.url(DATABASE)


def initialise(fleet: Fleet) -> None:
    """Create the database, and the configuration that abbys and guards copy."""
    primary = primary_of(fleet.databases)
    if primary is None:
        raise RigError("no database is the primary")
    part = fleet.components[primary.name]
    for statement in (f"CREATE ROLE {OWNER} LOGIN", f"CREATE DATABASE {DATABASE} OWNER {OWNER}"):
        part.host.run(functools.partial(psql, find_postgresql(), primary.port, statement, "postgres"))
    addresses = [SHARED, *(each.host.address for each in fleet.components.values())]
    options = ["--database-url", fleet.primary_url, "--host", "0.0.0.0"]
    options += ["--abby-port", str(ABBY), "--guard-port", str(GUARD)]
    options += [word for address in addresses for word in ("--name", address)]
    run_mailwarden("init", str(fleet.root / "config"), *options)


def run_mailwarden(*words: str) -> None:
    """Run a command of the product on the host of the test."""
    command = [sys.executable, "-m", "mailwarden", *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=INIT_SECONDS, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise RigError(f"`mailwarden {words[0]}` failed\n{done.stdout}{done.stderr}")


def _service(fleet: Fleet, part: Component, kind: str, port: int) -> Service:
    folder = part.folder / "config"
    shutil.copytree(fleet.root / "config", folder)
    service = Service(part.name, kind, folder, port)
    url = add_pooler(fleet, part)
    service.configure(
        {
            "database": {"url": url, "pooler": "transaction"},
            "quarantine": {"store": str(fleet.vault)},
        }
    )
    return service


def add_abbys(fleet: Fleet) -> None:
    guards = [f"https://{part.host.address}:{GUARD}" for part in fleet.of_kind("guard")]
    for part in fleet.of_kind("abby"):
        abby = _service(fleet, part, "abby", ABBY)
        abby.configure(
            {
                "serviceProviders": {"core": {"hosts": guards}},
                "listsRateLimit": 1_000_000,
                "spool": str(make_folder(part.disk.folder / "spool")),
            }
        )
        part.stages.append([abby])
        part.well = functools.partial(_ready, part.host.address, fleet)
        fleet.abbys.append(abby)


def add_engines(fleet: Fleet, rspamd_workers: int = 1) -> None:
    """Add a name server, clamd and Rspamd to the host of each guard."""
    for part in fleet.of_kind("guard"):
        dns = Dns(part.folder / "dns", key=fleet.key)
        clamd = Clamd(part.disk.folder / "clamd")
        redis = fleet.redis[0].address if fleet.redis else NO_REDIS
        changes = {"redis.conf": _rspamd_redis(fleet)} if fleet.redis else {}
        folder = part.disk.folder / "rspamd"
        lua = (SHIPPED / "rspamd.local.lua").read_text("ascii") if fleet.redis else ""
        rspamd = Rspamd(folder, redis=redis, dns=dns.address, workers=rspamd_workers, changes=changes, lua=lua)
        fleet.engines[part.name] = HostEngines(dns, clamd, rspamd)
        part.stages.append([dns, clamd, rspamd])


def add_guards(fleet: Fleet) -> None:
    """Add the guards beside their engines."""
    (mx,) = fleet.of_kind("mx")
    assert fleet.postfix is not None
    smtp = {"mode": "afterQueue", "clients": [NETWORK], "nextHop": f"{mx.host.address}:{fleet.postfix.back_port}"}
    for part in fleet.of_kind("guard"):
        guard = _service(fleet, part, "guard", GUARD)
        disk = part.disk.folder
        guard.configure(
            {
                "listen": {"host": "0.0.0.0", "port": GUARD},
                "name": part.name,
                "engines": _engine_settings(fleet, fleet.engines[part.name]),
                "scanSources": {"smtp": smtp | {"listen": {"host": part.host.address, "port": SMTP}}},
                "workers": {"count": 1, "heavyCount": 1},
                "spool": str(make_folder(disk / "spool")),
                "lists": {"replica": str(disk / "lists")},
                "journal": {"folder": str(disk / "journal"), "minFreeBytes": 0},
            }
        )
        part.stages.append([guard])
        part.well = functools.partial(_listens, part.host.address, SMTP, GUARD)
        fleet.guards.append(guard)


def _engine_settings(fleet: Fleet, engines: HostEngines) -> dict[str, object]:
    training: dict[str, object] = {"controller": engines.rspamd.controller_address, "password": PASSWORD}
    if fleet.redis:
        training |= {"sentinels": [each.address for each in fleet.sentinels], "sentinelService": SERVICE}
    return {
        "rspamd": {
            "address": engines.rspamd.address,
            "timeout": ENGINE_MILLISECONDS,
            **({"training": training} if fleet.redis else {}),
        },
        "clamav": {"address": engines.clamd.address, "timeout": ENGINE_MILLISECONDS},
        "dns": {"servers": [engines.dns.address], "probe": ZONES[0].name},
    }


def _rspamd_redis(fleet: Fleet) -> str:
    text = (SHIPPED / "rspamd-redis.conf").read_text("ascii")
    for number, part in enumerate(fleet.of_kind("redis"), 1):
        text = text.replace(f"redis{number}.example", part.host.address)
    return text


def add_edges(fleet: Fleet) -> None:
    addresses = {part.name: part.host.address for part in [*fleet.of_kind("abby"), *fleet.of_kind("guard")]}
    for number, part in enumerate(fleet.of_kind("lb")):
        proxy = EdgeProxy(part.disk.folder / "haproxy", fleet.ca, addresses)
        part.stages = [[proxy, Keepalived(part.disk.folder / "keepalived", part.name, SHARED, 101 - number)]]
        part.well = functools.partial(_listens, part.host.address, HTTPS)


def add_postfix(fleet: Fleet, sink_port: int) -> None:
    (part,) = fleet.of_kind("mx")
    fleet.postfix = FleetPostfix(part.disk.folder, part.host.address, SHARED, CLIENT, sink_port, NETWORK)
    part.stages = [[fleet.postfix]]


def _listens(address: str, *ports: int) -> bool:
    for port in ports:
        socket.create_connection((address, port), timeout=2.0).close()
    return True


def _ready(address: str, fleet: Fleet) -> bool:
    """Ask abby's /readyz at the address that the edges use."""
    command = ["curl", "-s", "-o", os.devnull, "-m", "3", "-w", "%{http_code}", "--cacert", str(fleet.ca)]
    done = subprocess.run(
        [*command, f"https://{address}:{ABBY}/readyz"],
        check=False,
        capture_output=True,
        text=True,
        timeout=STATEMENT_SECONDS,
    )
    return done.stdout == "200"
