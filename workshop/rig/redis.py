"""Redis or Valkey: stores Rspamd's statistics, in memory only."""

import socket
from pathlib import Path

from workshop.rig.folders import make_folder
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"


class Redis(ServerProcess):
    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self.url = f"redis://{self.address}/0"
        options = ["--bind", HOST, "--port", str(self.port), "--dir", str(folder), "--save", "", "--appendonly", "no"]
        super().__init__(
            "redis", [find_program("redis-server", "valkey-server"), *options], folder / "redis.log", self.ping
        )

    def ping(self) -> bool:
        with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
