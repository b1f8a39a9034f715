"""PgBouncer in transaction mode, with the configuration of deploy/ha and few connections to the server."""

import configparser
import socket
from pathlib import Path

from workshop.rig.folders import make_folder, service_user
from workshop.rig.ports import free_port
from workshop.rig.postgresql import HOST, OWNER
from workshop.rig.process import ServerProcess
from workshop.rig.programs import find_program

SHIPPED = Path(__file__).parents[2] / "deploy" / "ha" / "pgbouncer.ini"
SERVER_CONNECTIONS = 4


class Pgbouncer(ServerProcess):
    """Passes every database name on to the server at `port`."""

    def __init__(self, folder: Path, port: int, *, server_connections: int = SERVER_CONNECTIONS) -> None:
        # PgBouncer refuses to run as root.
        user = service_user("postgres")
        make_folder(folder, user)
        self.port = free_port()
        self.address = self.url("postgres")
        changed = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "auth_type": "trust",
            "auth_file": str(folder / "userlist.txt"),
            "logfile": "",
            "pidfile": "",
            "default_pool_size": str(server_connections),
        }
        (folder / "userlist.txt").write_text(f'"{OWNER}" ""\n', "ascii")
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(_with(SHIPPED.read_text("utf-8"), port, changed), "utf-8")
        command = [find_program("pgbouncer"), str(configuration)]
        super().__init__("pgbouncer", command, folder / "pgbouncer.log", self._answers, user=user)

    def url(self, name: str) -> str:
        return f"postgresql://{OWNER}@{HOST}:{self.port}/{name}"

    def _answers(self) -> bool:
        with socket.create_connection((HOST, self.port), timeout=1.0):
            return True


def _with(text: str, port: int, changed: dict[str, str]) -> str:
    """Return the shipped file with every database passed on to this port, and these settings."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="none")
    parser.read_string(text)
    server = parser["databases"]["mailwarden"].replace("host=127.0.0.1 port=5000", f"host={HOST} port={port}")
    lines = [f"[databases]\n* = {server}\n[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in {**parser["pgbouncer"], **changed}.items()]
    return "\n".join(lines) + "\n"
