"""The edge of the fleet: HAProxy and keepalived on two hosts, and Postfix on one, with the shipped configurations."""

import socket
from collections.abc import Mapping
from pathlib import Path

from workshop.rig.folders import make_folder
from workshop.rig.postfix import Postfix
from workshop.rig.process import ServerProcess
from workshop.rig.programs import find_program

SHIPPED = Path(__file__).parents[2] / "deploy" / "ha"
HTTPS, SMTP, ABBY = 443, 10025, 9081
LOOPBACK = "127.0.0.1"
# Postfix waits for each reply for 5 minutes, also on a connection whose other end was cut off: a test has no such time.
_COMMANDS = ("connect", "helo", "xforward", "mail", "rcpt", "data_init", "data_xfer", "data_done", "rset")
_TIMEOUTS = "\n    -o ".join(f"smtp_{command}_timeout=30s" for command in _COMMANDS)
DOMAINS = ("company.example", "pass.example")


class EdgeProxy(ServerProcess):
    """HAProxy before both abbys and the SMTP listeners of all guards."""

    def __init__(self, folder: Path, ca: Path, addresses: Mapping[str, str]) -> None:
        make_folder(folder)
        text = (SHIPPED / "haproxy-edge.cfg").read_text("utf-8").replace("/etc/haproxy/mailwarden-ca.crt", str(ca))
        for name, address in addresses.items():
            text = text.replace(f"{name}.example:", f"{address}:")
        kept = [line for line in text.splitlines() if ".example:" not in line]  # a small fleet has fewer guards
        (folder / "haproxy.cfg").write_text("\n".join(kept) + "\n", "utf-8")
        command = [find_program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]
        super().__init__("haproxy", command, folder / "haproxy.log", self._listens)

    def _listens(self) -> bool:
        with socket.create_connection((LOOPBACK, HTTPS), timeout=1.0):
            return True


class Keepalived(ServerProcess):
    """Gives the shared address to this host while it is the best one that is alive."""

    def __init__(self, folder: Path, name: str, shared: str, priority: int) -> None:
        make_folder(folder)
        text = (SHIPPED / "keepalived.conf").read_text("utf-8").replace("192.0.2.100", shared)
        text = text.replace("router_id lb1", f"router_id {name}").replace("priority 101", f"priority {priority}")
        (folder / "keepalived.conf").write_text(text, "utf-8")
        command = [
            *(find_program("keepalived"), "--dont-fork", "--log-console", "--vrrp"),
            *("--use-file", str(folder / "keepalived.conf")),
            *("--pid", str(folder / "keepalived.pid"), "--vrrp_pid", str(folder / "vrrp.pid")),
        ]
        super().__init__("keepalived", command, folder / "keepalived.log", lambda: True)


class FleetPostfix(Postfix):
    """Postfix on a host of its own: guards behind its queue, reached by the shared address of the edge."""

    def __init__(self, folder: Path, address: str, shared: str, sink: str, sink_port: int, network: str) -> None:
        super().__init__(folder, "after-queue", DOMAINS, sink_port, retry=1)
        self.host = address
        changed = {
            f"[{LOOPBACK}]:{self.guard_port}": f"[{shared}]:{SMTP}",
            f"[{LOOPBACK}]:{sink_port}": f"[{sink}]:{sink_port}",
            "127.0.0.0/8": f"127.0.0.0/8,{network}",
            f"inet_interfaces = {LOOPBACK}": "inet_interfaces = all",
            f"{LOOPBACK}:": "0.0.0.0:",
            "smtp_data_done_timeout=300s": _TIMEOUTS,
        }
        for path in (self.configuration / "main.cf", self.configuration / "master.cf"):
            text = path.read_text("ascii")
            for old, new in changed.items():
                text = text.replace(old, new)
            path.write_text(text, "ascii")
