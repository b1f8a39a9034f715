"""The demo with the engines of the rig."""

import re
import sys
from pathlib import Path

from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess

SEED_SECONDS = 1_200.0


def demo_words(folder: Path, engines: Engines) -> list[str]:
    """Return the words of `mailwarden demo` with these engines."""
    options = {
        "--folder": str(folder),
        "--postgresql": engines.postgresql.url("postgres"),
        "--rspamd": engines.rspamd.address,
        "--clamav": engines.clamd.address,
    }
    return ["demo", *(word for pair in options.items() for word in pair)]


class Demo(ServerProcess):
    """A demo that runs beside others, since it chooses its port; `address` is that of its console."""

    def __init__(self, folder: Path, engines: Engines) -> None:
        self.folder = folder / "deployment"
        log = folder / "demo.log"
        command = [sys.executable, "-m", "mailwarden", *demo_words(self.folder, engines), "--port", str(free_port())]
        super().__init__("demo", command, log, lambda: "Ctrl-C stops" in log.read_text("utf-8"), deadline=SEED_SECONDS)

    def start(self) -> None:
        super().start()
        [self.address] = set(re.findall(r"https://localhost:\d+", self.log.read_text("utf-8")))
