"""Postfix beside guard, before or after its queue: the shipped configuration on loopback ports, and a sink behind it.

Everything is in its own folder: configuration, queue and data. The master process is a child of the rig.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Literal

from workshop.rig.folders import make_folder
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
SHIPPED = Path(__file__).parents[2] / "deploy" / "postfix"
DAEMONS = Path("/usr/lib/postfix/sbin")
GUARD, BACK = f"{HOST}:10025", f"{HOST}:10026"  # as in the shipped files
Way = Literal["before-queue", "after-queue", "milter"]  # the last uses another milter, for comparison
_MILTER = "smtp      inet  n       -       n       -       -       smtpd\n"

# The services of every Postfix, without the chroot that Debian sets for most of them.
_MASTER = """\
pickup    unix  n       -       n       60      1       pickup
cleanup   unix  n       -       n       -       0       cleanup
qmgr      unix  n       -       n       300     1       qmgr
rewrite   unix  -       -       n       -       -       trivial-rewrite
bounce    unix  -       -       n       -       0       bounce
defer     unix  -       -       n       -       0       bounce
trace     unix  -       -       n       -       0       bounce
verify    unix  -       -       n       -       1       verify
flush     unix  n       -       n       1000?   0       flush
proxymap  unix  -       -       n       -       -       proxymap
smtp      unix  -       -       n       -       -       smtp
    -o smtp_line_length_limit=0
relay     unix  -       -       n       -       -       smtp
    -o smtp_line_length_limit=0
showq     unix  n       -       n       -       -       showq
error     unix  -       -       n       -       -       error
retry     unix  -       -       n       -       -       error
discard   unix  -       -       n       -       -       discard
anvil     unix  -       -       n       -       1       anvil
scache    unix  -       -       n       -       1       scache
postlog   unix-dgram n  -       n       -       1       postlogd
"""


class Postfix(ServerProcess):
    """Accepts mail for the domains at `port`, has guard scan it, and delivers the result to the sink.

    guard listens at `guard_port` and returns mail to `back_port`; both are chosen here, because Postfix has them in its
    configuration. Any client may claim another identity by XCLIENT. Without a sink all mail is discarded.
    """

    def __init__(
        self,
        folder: Path,
        way: Way,
        domains: tuple[str, ...],
        sink_port: int | None,
        *,
        retry: int = 2,
        milter_port: int | None = None,
    ) -> None:
        if os.geteuid() != 0:
            raise RigError("Postfix starts as root alone")
        self.port, self.guard_port, self.back_port = free_port(), free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        self.folder = make_folder(folder)
        self.configuration = make_folder(folder / "configuration")
        self.queue = make_folder(folder / "queue")
        make_folder(folder / "data", "postfix", 0o700)
        settings = {
            "compatibility_level": "3.6",
            "queue_directory": str(self.queue),
            "data_directory": str(folder / "data"),
            "daemon_directory": str(DAEMONS),
            "maillog_file": "/dev/stdout",
            "myhostname": "mx.rig.example",
            "mydestination": "",
            "mynetworks": "",
            "inet_interfaces": "127.0.0.1",
            "inet_protocols": "ipv4",
            "relay_domains": " ".join(domains),
            "relay_transport": "discard:" if sink_port is None else f"relay:[{HOST}]:{sink_port}",
            **({} if milter_port is None else {"smtpd_milters": f"inet:{HOST}:{milter_port}"}),
            "smtpd_recipient_restrictions": "reject_unauth_destination",
            "smtpd_authorized_xclient_hosts": "127.0.0.0/8",
            "smtpd_client_connection_count_limit": "0",
            "smtp_dns_support_level": "disabled",
            "alias_maps": "",
            "local_recipient_maps": "",
            "smtputf8_enable": "yes",
            # No sender is trusted, from any address: their header fields stay unchanged.
            "local_header_rewrite_clients": "",
            # Deferred mail is retried within seconds, because no test waits for minutes.
            "queue_run_delay": f"{retry}s",
            "minimal_backoff_time": f"{retry}s",
            "maximal_backoff_time": f"{retry}s",
            # A daemon that stopped for lack of space is retried as quickly.
            "service_throttle_time": f"{retry}s",
            "notify_classes": "",
        }
        main = "".join(f"{name} = {value}\n" for name, value in settings.items())
        self._write("main.cf", main + self._shipped(way, "main.cf"))
        self._write("master.cf", self._shipped(way, "master.cf") + _MASTER)
        shutil.copy("/etc/postfix/dynamicmaps.cf", self.configuration)
        super().__init__(
            "postfix",
            [str(DAEMONS / "master"), "-s", "-c", str(self.configuration)],
            folder / "postfix.log",
            self.answers,
            environment={"MAIL_CONFIG": str(self.configuration)},
        )

    def start(self) -> None:
        """Let Postfix create its queue folders, and start it."""
        check = [find_program("postfix"), "-c", str(self.configuration), "check"]
        done = subprocess.run(check, check=False, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise RigError(f"Postfix does not like its configuration\n{done.stdout}{done.stderr}")
        super().start()

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), timeout=2.0) as connection:
            return connection.recv(512).startswith(b"220 ")

    def waiting(self) -> int:
        """Count the messages in the queue."""
        listed = self._run("postqueue", "-j")
        return len(listed.splitlines())

    def flush(self) -> None:
        """Retry all deferred messages now."""
        self._run("postqueue", "-f")

    def forget_all(self) -> None:
        """Delete all messages of the queue."""
        self._run("postsuper", "-d", "ALL")

    def _run(self, program: str, *words: str) -> str:
        command = [find_program(program), "-c", str(self.configuration), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def _shipped(self, way: Way, name: str) -> str:
        if way == "milter":
            text = _MILTER if name == "master.cf" else ""
        else:
            text = (SHIPPED / way / name).read_text("ascii")
        text = text.replace(f"[{HOST}]:10025", f"[{HOST}]:{self.guard_port}").replace(
            GUARD, f"{HOST}:{self.guard_port}"
        )
        return text.replace(BACK, f"{HOST}:{self.back_port}").replace("smtp      inet", f"{HOST}:{self.port} inet")

    def _write(self, name: str, text: str) -> None:
        (self.configuration / name).write_text(text, "ascii")
