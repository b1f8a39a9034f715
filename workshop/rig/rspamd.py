"""Rspamd: the stock configuration with two workers, on a unix socket and a loopback port."""

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from workshop.rig.folders import make_folder, service_user, socket_path
from workshop.rig.patterns import restore_patterns, save_patterns
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
STOCK = Path("/etc/rspamd/rspamd.conf")
SHIPPED = Path(__file__).parents[2] / "deploy" / "rspamd"  # the settings that Mailwarden requires of any Rspamd
PASSWORD = "rig"
OFF = "enabled = false;\n"
# Without compiled patterns the start takes 15 s of one core, and on a busy machine 90 s were measured.
DEADLINE = 300.0


class Rspamd(ServerProcess):
    def __init__(
        self,
        folder: Path,
        *,
        redis: str,
        dns: str,
        workers: int = 2,
        milter: bool = False,
        changes: Mapping[str, str] | None = None,
        lua: str = "",
    ) -> None:
        """Take the text of changed configuration files by name, for tests that need wrong ones, and of Lua."""
        user = service_user("_rspamd")
        self._user_name = user
        make_folder(folder)
        self._state = make_folder(folder / "state", user)
        runtime = make_folder(folder / "run", user)
        self.socket = socket_path(runtime / "normal.sock")
        self.address = f"unix:{self.socket}"
        self.port, controller_port = free_port(), free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.controller_url = f"http://{HOST}:{controller_port}"
        self.controller_address = f"tcp:{HOST}:{controller_port}"
        # for an MTA that calls Rspamd without Mailwarden, for comparison
        self.milter_port = free_port() if milter else None
        settings = make_folder(make_folder(folder / "configuration") / "local.d")
        for name, text in {**self._settings(redis, dns, workers, controller_port), **(changes or {})}.items():
            (settings / name).write_text(text, "ascii")
        (settings.parent / "rspamd.local.lua").write_text(lua, "ascii")
        places = {"LOCAL_CONFDIR": settings.parent, "DBDIR": self._state, "RUNDIR": runtime, "LOGDIR": runtime}
        # It refuses to run as root: its main process switches the workers to this user.
        identity = [] if user is None else ["-u", user, "-g", user]
        super().__init__(
            "rspamd",
            [
                *(find_program("rspamd"), "-f", "-c", str(STOCK), *identity),
                *("-p", str(runtime / "rspamd.pid")),
                *(f"--var={name}={path}" for name, path in places.items()),
            ],
            folder / "rspamd.log",
            self.ping,
            deadline=DEADLINE,
        )

    def start(self) -> None:
        """Start it with the cached patterns, and cache those that this run compiles."""
        restore_patterns(self._state, self._user_name)
        super().start()
        save_patterns(self._state)

    def stop(self) -> None:
        super().stop()
        save_patterns(self._state)

    def ping(self) -> bool:
        return all(self._ask(port, "GET", "/ping", timeout=1.0).strip() == b"pong" for port in (None, self.port))

    def scan(self, message: bytes, headers: Mapping[str, str] | None = None) -> dict[str, object]:
        """Scan a message; the headers carry the envelope (From, Rcpt, IP, Helo)."""
        answer = json.loads(self._ask(None, "POST", "/checkv2", body=message, headers=headers, timeout=60.0))
        if not isinstance(answer, dict):
            raise RigError("Rspamd did not answer with an object")
        return answer

    def _ask(
        self,
        port: int | None,
        method: str,
        path: str,
        *,
        timeout: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request to the port, or to the unix socket if none is given."""
        connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
        if port is None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(timeout)
        try:
            if port is None:
                connection.sock.connect(str(self.socket))
            connection.request(method, path, body, dict(headers or {}))
            return connection.getresponse().read()
        except http.client.HTTPException as error:
            raise OSError(f"Rspamd gave no answer: {error!r}") from error
        finally:
            connection.close()

    def _milter(self, workers: int) -> str:
        scan = 'upstream "local" { default = yes; self_scan = yes; }'
        return f'bind_socket = "{HOST}:{self.milter_port}";\nmilter = yes;\ncount = {workers};\n{scan}\n'

    def _settings(self, redis: str, dns: str, workers: int, controller_port: int) -> dict[str, str]:
        """Return the differences from the stock configuration, by file."""
        shipped = (SHIPPED / "options.inc").read_text("ascii")
        sockets = f'["{self.socket} mode=0666", "{HOST}:{self.port}"]'
        return {
            "options.inc": shipped.replace("dns {", f'dns {{\n  nameserver = ["{dns}"];'),
            "worker-normal.inc": f"bind_socket = {sockets};\ncount = {workers};\n",
            "worker-controller.inc": f'bind_socket = "{HOST}:{controller_port}";\npassword = "{PASSWORD}";\n',
            "worker-proxy.inc": OFF if self.milter_port is None else self._milter(workers),
            "fuzzy_check.conf": OFF,
            **{path.name: path.read_text("ascii") for path in sorted(SHIPPED.glob("*.conf"))},
            "redis.conf": f'servers = "{redis}";\n',
            "logging.inc": 'type = "console";\nlevel = "error";\n',
        }
