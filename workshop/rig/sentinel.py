"""Three Redis servers and three Sentinels on loopback ports, with the configuration of deploy/ha."""

import socket
from dataclasses import dataclass
from pathlib import Path

from workshop.rig.engines import ServerGroup, start_together
from workshop.rig.folders import make_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
SHIPPED = Path(__file__).parents[2] / "deploy" / "ha"
SERVICE = "mailwarden"


class RedisNode(ServerProcess):
    """A Redis or a Sentinel with a configuration file, which it rewrites itself."""

    def __init__(
        self, name: str, folder: Path, port: int, text: str, *, sentinel: bool = False, host: str = HOST
    ) -> None:
        """Take the address of a host of its own, where it listens on the loopback as well."""
        make_folder(folder)
        self._host, self.port = host, port
        self.address = f"{host}:{port}"
        bound = " ".join(dict.fromkeys((host, HOST)))
        (folder / "node.conf").write_text(f"{text}\nport {port}\nbind {bound}\ndir {folder}\n", "ascii")
        command = [find_program("redis-server"), str(folder / "node.conf"), *(["--sentinel"] if sentinel else [])]
        super().__init__(name, command, folder / "node.log", lambda: self.ask("PING").startswith(b"+PONG"))

    def ask(self, command: str) -> bytes:
        with socket.create_connection((self._host, self.port), timeout=2.0) as connection:
            connection.sendall(command.encode("ascii") + b"\r\n")
            return connection.recv(65_536)


@dataclass(frozen=True, slots=True)
class SentinelTrio(ServerGroup):
    """Leaving the context stops all six servers."""

    folder: Path
    redis: tuple[RedisNode, ...]
    sentinels: tuple[RedisNode, ...]

    @property
    def servers(self) -> tuple[RedisNode, ...]:
        return (*self.sentinels, *self.redis)

    def master(self) -> RedisNode | None:
        """Return the Redis that most Sentinels call the master."""
        answers = [
            each.ask(f"SENTINEL get-master-addr-by-name {SERVICE}").split() for each in self.sentinels if each.running
        ]
        named = [f"{words[2].decode()}:{words[-1].decode()}" for words in answers if len(words) > 3]
        return next((each for each in self.redis if named.count(each.address) > 1), None)

    def has_replica(self) -> bool:
        """Return whether the master has a replica, without which it takes no writes."""
        master = self.master()
        return master is not None and b"connected_slaves:0" not in master.ask("INFO replication")

    def is_replicated(self) -> bool:
        """Return whether the master has two replicas, and every Sentinel knows them and the others.

        A Sentinel never turns a replica to a new master that it did not know before.
        """
        master = self.master()
        if master is None or not master.running or b"connected_slaves:2" not in master.ask("INFO replication"):
            return False
        return all(b"slaves=2,sentinels=3" in each.ask("INFO sentinel") for each in self.sentinels)


def start_sentinels() -> SentinelTrio:
    folder = temporary_folder()
    ports = [free_port() for _ in range(3)]
    redis = tuple(
        RedisNode(f"redis{number}", folder / f"redis{number}", port, redis_text(f"{HOST} {ports[0]}" if number else ""))
        for number, port in enumerate(ports)
    )
    sentinels = tuple(
        RedisNode(
            f"sentinel{number}",
            folder / f"sentinel{number}",
            free_port(),
            sentinel_text(f"{HOST} {ports[0]}"),
            sentinel=True,
        )
        for number in range(3)
    )
    trio = SentinelTrio(folder, redis, sentinels)
    start_together([server.start for server in redis], redis)
    start_together([server.start for server in sentinels], sentinels)
    return trio


def redis_text(master: str = "") -> str:
    """Return the shipped configuration of a Redis, which follows the master at `host port` if one is given."""
    text = _without((SHIPPED / "redis.conf").read_text("ascii"), "bind", "appendonly")
    return text + (f"replicaof {master}" if master else "")


def sentinel_text(master: str) -> str:
    """Return the shipped configuration of a Sentinel for the master at `host port`, with shorter times."""
    watched = _without((SHIPPED / "sentinel.conf").read_text("ascii"), "port")
    watched = watched.replace("redis1.example 6379", master).replace("5000", "2000")
    # On a busy machine the first vote can fail; the next comes after twice this time.
    return watched.replace("30000", "5000")


def _without(text: str, *words: str) -> str:
    """Return a configuration without the lines that begin with these words."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(words))
