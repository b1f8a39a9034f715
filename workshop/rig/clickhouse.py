"""ClickHouse servers: one, a replicated pair with ZooKeeper, and the embedded one; commands can have a prefix."""

import contextlib
import functools
import http.client
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from workshop.rig.engines import ServerGroup, start_together
from workshop.rig.folders import make_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
JAR = Path("/usr/share/java/zookeeper.jar")
READY_SECONDS = 90.0  # a Java process on a busy machine
QUERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one server: HTTP, native protocol, and between replicas."""

    http: int
    native: int
    interserver: int

    @classmethod
    def free(cls) -> "Ports":
        return cls(free_port(), free_port(), free_port())


class Zookeeper(ServerProcess):
    """One ZooKeeper, alone or of the ensemble of the hosts `members`.

    `prefix` runs it elsewhere, such as `["ip", "netns", "exec", "name"]`.
    """

    def __init__(
        self,
        folder: Path,
        host: str = HOST,
        port: int | None = None,
        prefix: Sequence[str] = (),
        members: Sequence[str] = (),
    ) -> None:
        if not JAR.exists():
            raise RigError("zookeeper is not installed: `make setup-long` installs it")
        data = make_folder(folder / "data")
        self.host, self.port = host, port or free_port()
        self.address = f"{host}:{self.port}"
        configuration = folder / "zoo.cfg"
        configuration.write_text(
            f"tickTime=500\ndataDir={data}\nclientPort={self.port}\nclientPortAddress={host}\n"
            f"admin.enableServer=false\n4lw.commands.whitelist=srvr\npreAllocSize=1024\n{_ensemble(members)}",
            "utf-8",
        )
        if members:
            (data / "myid").write_text(f"{members.index(host) + 1}\n", "ascii")
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(JAR)]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        super().__init__(
            "zookeeper",
            [*prefix, find_program("java"), *options, main, str(configuration)],
            folder / "zookeeper.log",
            self.answers,
            deadline=READY_SECONDS,
        )

    def answers(self) -> bool:
        """Return whether it serves clients; a member of an ensemble does so with a majority alone."""
        with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.makefile("rb").read()


def _ensemble(members: Sequence[str]) -> str:
    """Return the lines about the members of an ensemble: first of all, how many ticks they wait for each other."""
    lines = ["initLimit=20", "syncLimit=10"] if members else []
    lines += [f"server.{number}={host}:2888:3888" for number, host in enumerate(members, 1)]
    return "".join(f"{line}\n" for line in lines)


class Clickhouse(ServerProcess):
    """One server of Debian's ClickHouse 18.16; with the addresses of ZooKeeper, a replica of one shard."""

    def __init__(
        self,
        folder: Path,
        name: str = "clickhouse",
        *,
        host: str = HOST,
        ports: Ports | None = None,
        zookeepers: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        make_folder(folder)  # the server runs as the owner of its folder
        self.host, self.ports = host, ports or Ports.free()
        self.data = folder / "data"
        self.address = f"http://{host}:{self.ports.http}"
        configuration = folder / "config.xml"
        configuration.write_text(_configuration(name, folder, host, self.ports, zookeepers), "utf-8")
        (folder / "users.xml").write_text(_USERS, "utf-8")
        super().__init__(
            name,
            [*prefix, find_program("clickhouse-server"), f"--config-file={configuration}"],
            folder / f"{name}.log",
            functools.partial(_pings, host, self.ports.http),
            deadline=READY_SECONDS,
        )

    def execute(self, statement: str, database: str = "default", seconds: float = QUERY_SECONDS) -> str:
        """Run a statement and return its rows as text, tabs between values."""
        return _post(self.host, self.ports.http, statement, database, seconds)


def merge(replicas: Iterable[Clickhouse], table: str, database: str) -> None:
    """Have the leader merge a table; 18.16 refuses it on other replicas, and where there is nothing to merge."""
    for replica in replicas:
        with contextlib.suppress(RigError):
            replica.execute(f"OPTIMIZE TABLE {table} FINAL", database)


class EmbeddedClickhouse(ServerProcess):
    """The newest ClickHouse, embedded by chdb and behind a listener of ours: see embedded_clickhouse.py."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.port = free_port()
        self.address = f"http://{HOST}:{self.port}"
        self.data = folder / "data"
        command = [sys.executable, "-m", "workshop.rig.embedded_clickhouse", str(self.data), str(self.port)]
        super().__init__(
            "clickhouse",
            command,
            folder / "clickhouse.log",
            functools.partial(_pings, HOST, self.port),
            deadline=READY_SECONDS,
            environment={"PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def execute(self, statement: str, database: str = "default") -> str:
        return _post(HOST, self.port, statement, database)


@dataclass(frozen=True, slots=True)
class ClickhousePair(ServerGroup):
    """Two replicas and their ZooKeeper; leaving the context stops them."""

    folder: Path
    zookeeper: Zookeeper
    replicas: tuple[Clickhouse, Clickhouse]

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        return (*self.replicas, self.zookeeper)


def start_pair() -> ClickhousePair:
    """Start ZooKeeper and two replicas on loopback ports."""
    folder = temporary_folder()
    zookeeper = Zookeeper(folder / "zookeeper")
    first, second = (
        Clickhouse(folder / name, name, zookeepers=[zookeeper.address]) for name in ("clickhouse1", "clickhouse2")
    )
    start_together([zookeeper.start], (zookeeper,))
    start_together([first.start, second.start], (first, second))
    return ClickhousePair(folder, zookeeper, (first, second))


_USERS = """<yandex>
<profiles><default><max_memory_usage>1000000000</max_memory_usage></default></profiles>
<users><default><password></password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
</default></users>
<quotas><default></default></quotas>
</yandex>
"""
_CONFIGURATION = """<yandex>
<logger><level>warning</level><console>true</console></logger>
<listen_host>{host}</listen_host>
<http_port>{http}</http_port>
<tcp_port>{native}</tcp_port>
<interserver_http_port>{interserver}</interserver_http_port>
<interserver_http_host>{host}</interserver_http_host>
<path>{folder}/data/</path>
<tmp_path>{folder}/tmp/</tmp_path>
<users_config>users.xml</users_config>
<default_profile>default</default_profile>
<default_database>default</default_database>
<mark_cache_size>67108864</mark_cache_size>
<max_connections>200</max_connections>
<macros><shard>1</shard><replica>{name}</replica></macros>
{zookeeper}
</yandex>
"""
_ZOOKEEPER = "<zookeeper>{nodes}<session_timeout_ms>6000</session_timeout_ms></zookeeper>"
_NODE = "<node><host>{host}</host><port>{port}</port></node>"


def _configuration(name: str, folder: Path, host: str, ports: Ports, zookeepers: Sequence[str]) -> str:
    places = [address.rpartition(":") for address in zookeepers]
    nodes = "".join(_NODE.format(host=there, port=port) for there, _, port in places)
    return _CONFIGURATION.format(
        name=escape(name),
        folder=escape(str(folder)),
        host=host,
        http=ports.http,
        native=ports.native,
        interserver=ports.interserver,
        zookeeper=_ZOOKEEPER.format(nodes=nodes) if zookeepers else "",
    )


def _pings(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _post(host: str, port: int, statement: str, database: str, seconds: float = QUERY_SECONDS) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("POST", f"/?database={quote(database)}&wait_end_of_query=1", statement.encode())
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace").strip()
    finally:
        connection.close()
    if response.status != 200:
        raise RigError(f"ClickHouse refused `{statement[:200]}`: {text[:500]}")
    return text
