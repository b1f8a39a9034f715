"""PostgreSQL: a separate cluster on a loopback port, and its databases."""

import os
import signal
import subprocess
from pathlib import Path

from workshop.rig.folders import make_folder, service_user
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_postgresql

HOST = "127.0.0.1"
SUPERUSER = "postgres"
OWNER = "mailwarden"
COMMAND_SECONDS = 60.0
START_SECONDS = 120.0  # after a kill with fsync on it syncs every file of every database first
STATEMENT_SECONDS = 50  # the server ends a statement itself: one whose psql was killed would keep waiting for its locks
# fsync and synchronous_commit are on: tests that kill the server check the durability of commits.
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "wal_compression": "lz4",
    "log_min_messages": "warning",
    # Shared memory is in the cluster's folder, so that a killed server leaves nothing elsewhere.
    "dynamic_shared_memory_type": "mmap",
}


class Postgresql(ServerProcess):
    """Its databases belong to a role without special rights, as in production."""

    def __init__(self, folder: Path) -> None:
        # PostgreSQL refuses to run as root.
        self._service_user = service_user("postgres")
        self._programs = find_postgresql()
        self.port = free_port()
        self.address = self.url("postgres")
        self.data = make_folder(folder, self._service_user) / "data"
        settings = [f"--{key}={value}" for key, value in SETTINGS.items()]
        super().__init__(
            "postgresql",
            [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings],
            folder / "postgresql.log",
            self._answers,
            deadline=START_SECONDS,
            user=self._service_user,
            stop_signal=signal.SIGINT,  # Fast shutdown: does not wait for clients to disconnect.
        )

    def url(self, name: str) -> str:
        return f"postgresql://{OWNER}@{HOST}:{self.port}/{name}"

    def start(self) -> None:
        """Start the server; create the cluster and the role first if they are missing."""
        fresh = not self.data.exists()
        if fresh:
            self._initialise()
        super().start()
        if fresh:
            self.execute(f"CREATE ROLE {OWNER} LOGIN CREATEDB")

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, optionally as a copy of another, and return its URL."""
        copied = f" TEMPLATE {_quote(template)}" if template is not None else ""
        self.execute(f"CREATE DATABASE {_quote(name)} OWNER {OWNER}{copied}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and its connections."""
        self.execute(f"DROP DATABASE IF EXISTS {_quote(name)} WITH (FORCE)")

    def set_fsync(self, *, on: bool) -> None:
        """Set whether the running server waits for the disk; the setting survives its restart."""
        self.execute(f"ALTER SYSTEM SET fsync = {'on' if on else 'off'}")
        self.execute("SELECT pg_reload_conf()")

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser and return its rows as text."""
        return psql(self._programs, self.port, statement, database)

    def _initialise(self) -> None:
        # The server's first checkpoint synchronises the cluster's files; doing it twice costs a second.
        options = ["--auth=trust", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(
            [str(self._programs / "initdb"), "-D", str(self.data), "-U", SUPERUSER, *options],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            user=self._service_user,
            group=self._service_user,
            extra_groups=None if self._service_user is None else [],
            cwd=self.log.parent,
        )
        if done.returncode != 0:
            raise RigError(f"initdb failed: {done.stderr.strip()}")

    def _answers(self) -> bool:
        probe = [str(self._programs / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port), "-t", "1"]
        return subprocess.run(probe, check=False).returncode == 0


def psql(programs: Path, port: int, statement: str, database: str) -> str:
    """Run a statement as the superuser on the server at this port and return its rows as text."""
    options = ["-XAqt", "-v", "ON_ERROR_STOP=1", "-h", HOST, "-p", str(port), "-U", SUPERUSER, "-d", database]
    done = _run([str(programs / "psql"), *options, "-c", statement])
    if done.returncode != 0:
        others = _run([str(programs / "psql"), *options, "-c", _OTHERS]).stdout if _TOOK_TOO_LONG in done.stderr else ""
        raise RigError(f"PostgreSQL refused `{statement}`: {done.stderr.strip()}\n{others}".strip())
    return done.stdout.strip()


_TOOK_TOO_LONG = "due to statement timeout"
_OTHERS = """
SELECT pid, datname, application_name, state, wait_event_type, wait_event, now() - xact_start, left(query, 200)
FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 50
"""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PGOPTIONS": f"-c statement_timeout={STATEMENT_SECONDS}s"}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS, env=environment
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
