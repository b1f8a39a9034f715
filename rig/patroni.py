"""A PostgreSQL cluster of three hosts on loopback ports: etcd, Patroni, HAProxy and PgBouncer as in deploy/ha."""

import functools
import http.client
import json
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ruamel.yaml import YAML

from rig import watcher
from rig.engines import start_together
from rig.folders import make_folder, remove_folder, service_user, temporary_folder
from rig.pgbouncer import Pgbouncer
from rig.ports import free_port
from rig.postgresql import HOST, OWNER, psql
from rig.process import RigError, ServerProcess
from rig.programs import find_postgresql, find_program

SHIPPED = Path(__file__).parent.parent / "deploy" / "ha"
HOSTS = ("db1", "db2", "db3")
FORM_SECONDS = 90.0


class Etcd(ServerProcess):
    """One etcd member; one is enough, because these tests kill PostgreSQL alone."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.port, peer = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        client_url, peer_url = f"http://{self.address}", f"http://{HOST}:{peer}"
        options = {
            "name": "e1",
            "data-dir": folder / "data",
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"e1={peer_url}",
            "enable-v2": "true",
        }
        command = [find_program("etcd"), *(f"--{name}={value}" for name, value in options.items())]
        super().__init__("etcd", command, folder / "etcd.log", lambda: _get(self.port, "/health")[0] == 200)


class DatabaseHost(ServerProcess):
    """Patroni with its PostgreSQL; killing it kills both."""

    def __init__(self, name: str, folder: Path, etcd: str) -> None:
        user = service_user("postgres")
        make_folder(folder, user)
        self.port, self.rest = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        configuration = folder / "patroni.yml"
        given = _host_configuration(name, folder, etcd, self.port, self.rest)
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
        self._postmaster = folder / "data" / "postmaster.pid"

    def kill(self) -> None:
        """Kill Patroni and PostgreSQL, which Patroni starts in a session of its own."""
        if self.running:
            self.pause()  # Patroni must not start PostgreSQL again
        try:
            postmaster = int(self._postmaster.read_text("ascii").split()[0])
        except (FileNotFoundError, IndexError):
            postmaster = 0
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

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        return (self.pgbouncer, self.haproxy, *self.hosts, self.etcd)

    def members(self) -> dict[str, tuple[str, str]]:
        """Return role and state of each host, as a running one reports them."""
        for host in self.hosts:
            if host.running:
                try:
                    status, body = _get(host.rest, "/cluster")
                except OSError:
                    continue
                if status == 200:
                    return {each["name"]: (each["role"], each["state"]) for each in json.loads(body)["members"]}
        return {}

    def primary(self) -> DatabaseHost | None:
        """Return the running host that says that it is the primary."""
        for host in self.hosts:
            try:
                if host.running and _get(host.rest, "/primary")[0] == 200:
                    return host
            except OSError:
                continue
        return None

    def is_protected(self) -> bool:
        """Return whether all hosts run and one of them is the synchronous standby."""
        found = self.members()
        running = [role for role, state in found.values() if state in ("running", "streaming")]
        return len(running) == len(self.hosts) and "sync_standby" in running and self.primary() is not None

    def wait(self, seconds: float = FORM_SECONDS) -> None:
        """Wait until all hosts run and a commit is on two of them."""
        end = time.monotonic() + seconds
        while not self.is_protected():
            if time.monotonic() > end:
                raise RigError(f"the cluster did not form: {self.members()}\n{self.hosts[0].log_tail()}")
            time.sleep(0.2)

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


def start_cluster(server_connections: int = 8) -> Cluster:
    """Start the cluster; return when a commit is on two hosts."""
    folder = temporary_folder()
    etcd = Etcd(folder / "etcd")
    hosts = tuple(DatabaseHost(name, folder / name, etcd.address) for name in HOSTS)
    haproxy = Haproxy(folder / "haproxy", hosts)
    pgbouncer = Pgbouncer(folder / "pgbouncer", haproxy.port, server_connections=server_connections)
    cluster = Cluster(folder, etcd, hosts, haproxy, pgbouncer)
    try:
        etcd.start()
        others = (*hosts, haproxy, pgbouncer)
        start_together([server.start for server in others], others)
        cluster.wait()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _host_configuration(name: str, folder: Path, etcd: str, port: int, rest: int) -> dict[str, object]:
    """Return the shipped configuration with the addresses of this host, and without passwords."""
    given = YAML(typ="safe").load((SHIPPED / "patroni.yml").read_text("utf-8"))
    given["name"] = name
    given["restapi"] = {"listen": f"{HOST}:{rest}", "connect_address": f"{HOST}:{rest}"}
    given["etcd"] = {"hosts": [etcd]}
    given["bootstrap"]["pg_hba"] = [
        line.replace("samenet", f"{HOST}/32").replace("scram-sha-256", "trust") for line in given["bootstrap"]["pg_hba"]
    ]
    given["postgresql"] |= {
        "listen": f"{HOST}:{port}",
        "connect_address": f"{HOST}:{port}",
        "data_dir": str(folder / "data"),
        "bin_dir": str(find_postgresql()),
        "pgpass": str(folder / "pgpass"),
        "parameters": {"unix_socket_directories": "", "dynamic_shared_memory_type": "mmap", "shared_buffers": "32MB"},
    }
    given["watchdog"] = {"mode": "off"}
    return dict(given)


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1.0):
        return True
