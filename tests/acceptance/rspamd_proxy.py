"""Rspamd's own proxy as a milter, with guard's `/checkv2` behind it instead of Rspamd's scanner."""

import socket
from pathlib import Path

from workshop.rig.folders import make_folder, service_user
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"


class RspamdProxy(ServerProcess):
    """The worker alone; it scans nothing itself."""

    def __init__(self, folder: Path, upstream: str, *, milter: bool = True) -> None:
        user = service_user("_rspamd")
        make_folder(folder)
        runtime = make_folder(folder / "run", user)
        self.port = free_port()
        configuration = folder / "rspamd.conf"
        configuration.write_text(
            f'options {{ tempdir = "{runtime}"; filters = ""; }}\n'
            'logging { type = "console"; level = "info"; }\n'
            'worker "rspamd_proxy" {\n'
            f'  bind_socket = "{HOST}:{self.port}";\n'
            f"  milter = {'yes' if milter else 'no'};\n  timeout = 60s;\n  count = 1;\n"
            f'  upstream "mailwarden" {{ default = yes; hosts = "{upstream}"; }}\n'
            "}\n",
            "ascii",
        )
        identity = [] if user is None else ["-u", user, "-g", user]
        super().__init__(
            "rspamd",
            [find_program("rspamd"), "-f", "-c", str(configuration), *identity, "-p", str(runtime / "rspamd.pid")],
            folder / "rspamd.log",
            self.listens,
            deadline=60.0,
        )

    def listens(self) -> bool:
        with socket.create_connection((HOST, self.port), timeout=1.0):
            return True


def ask_as_exim(port: int, message: bytes, *recipients: str) -> str:
    """Speak Rspamd's older protocol, as Exim's `variant=rspamd` does; return the whole reply."""
    head = [
        "CHECK RSPAMC/1.3",
        f"Content-length: {len(message)}",
        "Queue-Id: 1abc",
        "From: <alice@pass.example>",
        f"Recipient-Number: {len(recipients)}",
        *(f"Rcpt: <{recipient}>" for recipient in recipients),
        "Helo: mail.pass.example",
        "IP: 192.0.2.10",
    ]
    with socket.create_connection((HOST, port), timeout=60.0) as connection:
        connection.sendall("\r\n".join(head).encode("ascii") + b"\r\n\r\n" + message)
        pieces = []
        while piece := connection.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces).decode("utf-8")


def own_address() -> str | None:
    """Return an address of this host that is not loopback: to loopback the proxy sends shared memory, not messages."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if address.startswith("127.") else address
