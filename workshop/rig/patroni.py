"""A PostgreSQL cluster of three hosts on loopback ports: etcd, Patroni, HAProxy and PgBouncer as in deploy/ha."""

import functools
import http.client
import json
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ruamel.yaml import YAML

from workshop.rig import watcher
from workshop.rig.engines import start_together
from workshop.rig.folders import make_folder, remove_folder, service_user, temporary_folder
from workshop.rig.pgbouncer import Pgbouncer
from workshop.rig.ports import free_port
from workshop.rig.postgresql import HOST, OWNER, psql
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_postgresql, find_program

SHIPPED = Path(__file__).parents[2] / "deploy" / "ha"
HOSTS = ("db1", "db2", "db3")
EVERYWHERE = "0.0.0.0"  # in a network namespace of its own
FORM_SECONDS = 90.0


class Etcd(ServerProcess):
    """One etcd member; on loopback it is the only one, because the tests there kill PostgreSQL alone.

    `members` has the addresses of all members by name, for hosts of their own; they use etcd's usual ports.
    """

    def __init__(self, folder: Path, name: str = "e1", members: Mapping[str, str] | None = None) -> None:
        make_folder(folder)
        self.port, peer = (2379, 2380) if members else (free_port(), free_port())
        peers = {each: f"http://{address}:{peer}" for each, address in (members or {name: HOST}).items()}
        self.address = f"{(members or {name: HOST})[name]}:{self.port}"
        listen = EVERYWHERE if members else HOST
        options = {
            "name": name,
            "data-dir": folder / "data",
            "listen-client-urls": f"http://{listen}:{self.port}",
            "advertise-client-urls": f"http://{self.address}",
            "listen-peer-urls": f"http://{listen}:{peer}",
            "initial-advertise-peer-urls": peers[name],
            "initial-cluster": ",".join(f"{each}={url}" for each, url in peers.items()),
            "enable-v2": "true",
        }
        command = [find_program("etcd"), *(f"--{name}={value}" for name, value in options.items())]
        super().__init__("etcd", command, folder / "etcd.log", lambda: _get(self.port, "/health")[0] == 200)


class DatabaseHost(ServerProcess):
    """Patroni with its PostgreSQL; killing it kills both.

    On a host of its own, `host` is its address and `network` has the other hosts.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        etcd: Sequence[str],
        *,
        host: str = HOST,
        network: str = f"{HOST}/32",
        synchronous: bool = True,
    ) -> None:
        user = service_user("postgres")
        make_folder(folder, user)
        self.port, self.rest = free_port(), free_port()
        self.address = f"{host}:{self.port}"
        configuration = folder / "patroni.yml"
        given = _host_configuration(
            name,
            folder,
            etcd,
            rest=f"{host}:{self.rest}",
            address=self.address,
            network=network,
            synchronous=synchronous,
        )
        YAML().dump(given, configuration)
        super().__init__(
            name,
            [find_program("patroni"), str(configuration)],
            folder / "patroni.log",
            lambda: _get(self.rest, "/health")[0] == 200,
            deadline=FORM_SECONDS,
            grace=30.0,
            user=user,
        )
        self._host = host
        self._postmaster = folder / "data" / "postmaster.pid"

    def ask(self, path: str) -> tuple[int, bytes]:
        """Ask Patroni at the address that other hosts use."""
        return _get(self.rest, path, self._host)

    def hold_replication(self) -> None:
        """Stop the processes that send changes to the other hosts, until the host is killed."""
        senders = [each for each in watcher.tree(self._postmaster_pid()) if b"walsender" in _title(each)]
        if not senders:
            raise RigError(f"{self.name} has no replica to hold back")
        for each in senders:
            watcher.send(each, signal.SIGSTOP)

    def _postmaster_pid(self) -> int:
        try:
            return int(self._postmaster.read_text("ascii").split()[0])
        except (FileNotFoundError, IndexError):
            return 0

    def kill(self) -> None:
        """Kill Patroni and PostgreSQL, which Patroni starts in a session of its own."""
        if self.running:
            self.pause()  # Patroni must not start PostgreSQL again
        postmaster = self._postmaster_pid()
        if postmaster and watcher.is_running(postmaster):
            watcher.signal_tree(postmaster, signal.SIGKILL)
        super().kill()


class Haproxy(ServerProcess):
    """Port `port` is the primary."""

    def __init__(self, folder: Path, hosts: Sequence[DatabaseHost]) -> None:
        make_folder(folder)
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        text = (SHIPPED / "haproxy.cfg").read_text("utf-8").replace("127.0.0.1:5000", self.address)
        for host in hosts:
            text = text.replace(f"{host.name}.example:5432 check port 8008", f"{host.address} check port {host.rest}")
        (folder / "haproxy.cfg").write_text(text, "utf-8")
        command = [find_program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]
        super().__init__("haproxy", command, folder / "haproxy.log", functools.partial(_listens, self.port))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Clients use PgBouncer; leaving the context stops everything."""

    folder: Path
    etcd: Etcd
    hosts: tuple[DatabaseHost, ...]
    haproxy: Haproxy
    pgbouncer: Pgbouncer
    synchronous: bool = True

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        return (self.pgbouncer, self.haproxy, *self.hosts, self.etcd)

    def primary(self) -> DatabaseHost | None:
        return primary_of(self.hosts)

    def wait(self, seconds: float = FORM_SECONDS) -> None:
        """Wait until all hosts run, and a commit is on two of them unless the cluster is asynchronous."""
        wait_until_protected(self.hosts, seconds, synchronous=self.synchronous)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser on the primary."""
        return psql(find_postgresql(), self.haproxy.port, statement, database)

    def create_database(self, name: str) -> str:
        """Create a database and its owner; return the address through PgBouncer."""
        self.execute(f"CREATE ROLE {OWNER} LOGIN")
        self.execute(f'CREATE DATABASE "{name}" OWNER {OWNER}')
        return self.pgbouncer.url(name)

    def direct_url(self, name: str) -> str:
        """Return the address past PgBouncer."""
        return f"postgresql://{OWNER}@{self.haproxy.address}/{name}"

    def stop(self) -> None:
        for server in self.servers[:2]:
            server.stop()
        for host in self.hosts:
            host.kill()
        self.etcd.stop()
        remove_folder(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def members_of(hosts: Sequence[DatabaseHost]) -> dict[str, tuple[str, str]]:
    """Return role and state of each host, as a running one reports them."""
    for host in hosts:
        if host.running:
            try:
                status, body = host.ask("/cluster")
            except OSError:
                continue
            if status == 200:
                return {each["name"]: (each["role"], each["state"]) for each in json.loads(body)["members"]}
    return {}


def primary_of(hosts: Sequence[DatabaseHost]) -> DatabaseHost | None:
    """Return the running host that says that it is the primary."""
    for host in hosts:
        try:
            if host.running and host.ask("/primary")[0] == 200:
                return host
        except OSError:
            continue
    return None


def is_protected(hosts: Sequence[DatabaseHost], *, synchronous: bool = True) -> bool:
    """Return whether all hosts run and one of them is the synchronous standby."""
    running = [role for role, state in members_of(hosts).values() if state in ("running", "streaming")]
    protected = "sync_standby" in running or not synchronous
    return len(running) == len(hosts) and protected and primary_of(hosts) is not None


def wait_until_protected(
    hosts: Sequence[DatabaseHost], seconds: float = FORM_SECONDS, *, synchronous: bool = True
) -> None:
    """Wait until all hosts run and a commit is on two of them."""
    end = time.monotonic() + seconds
    while not is_protected(hosts, synchronous=synchronous):
        if time.monotonic() > end:
            raise RigError(f"the cluster did not form: {members_of(hosts)}\n{hosts[0].log_tail()}")
        time.sleep(0.2)


def start_cluster(server_connections: int = 8, *, synchronous: bool = True) -> Cluster:
    """Start the cluster; return when a commit is on two hosts. Without synchronous mode it loses changes."""
    folder = temporary_folder()
    etcd = Etcd(folder / "etcd")
    hosts = tuple(DatabaseHost(name, folder / name, [etcd.address], synchronous=synchronous) for name in HOSTS)
    haproxy = Haproxy(folder / "haproxy", hosts)
    pgbouncer = Pgbouncer(folder / "pgbouncer", haproxy.port, server_connections=server_connections)
    cluster = Cluster(folder, etcd, hosts, haproxy, pgbouncer, synchronous)
    try:
        etcd.start()
        others = (*hosts, haproxy, pgbouncer)
        start_together([server.start for server in others], others)
        cluster.wait()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _host_configuration(
    name: str, folder: Path, etcd: Sequence[str], *, rest: str, address: str, network: str, synchronous: bool
) -> dict[str, object]:
    """Return the shipped configuration with the addresses of this host, and without passwords."""
    given = YAML(typ="safe").load((SHIPPED / "patroni.yml").read_text("utf-8"))
    given["name"] = name
    given["restapi"] = {"listen": _listen(rest), "connect_address": rest}
    given["etcd"] = {"hosts": list(etcd)}
    given["bootstrap"]["pg_hba"] = [
        line.replace("samenet", each).replace("scram-sha-256", "trust")
        for line in given["bootstrap"]["pg_hba"]
        for each in dict.fromkeys((f"{HOST}/32", network))
    ]
    given["postgresql"] |= {
        "listen": _listen(address),
        "connect_address": address,
        "data_dir": str(folder / "data"),
        "bin_dir": str(find_postgresql()),
        "pgpass": str(folder / "pgpass"),
        "parameters": {"unix_socket_directories": "", "dynamic_shared_memory_type": "mmap", "shared_buffers": "32MB"},
    }
    given["watchdog"] = {"mode": "off"}
    if not synchronous:
        dcs = {"synchronous_mode": False, "synchronous_mode_strict": False, "maximum_lag_on_failover": 1 << 30}
        given["bootstrap"]["dcs"] |= dcs
    return dict(given)


def _listen(address: str) -> str:
    """Return where a server with this address listens: a host of its own is also asked on its loopback."""
    return address if address.startswith(f"{HOST}:") else f"{EVERYWHERE}:{address.rpartition(':')[2]}"


def _get(port: int, path: str, host: str = HOST) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1.0):
        return True
