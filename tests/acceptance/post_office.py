"""Two guards, each beside a Postfix of its own, and one sink behind both."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailwarden.crypto.keyring import read_ring
from mailwarden.guard.result_headers import ResultSeal
from rig.engines import Engines
from rig.folders import remove_folder, temporary_folder
from rig.postfix import Postfix
from rig.product import Overrides
from tests.acceptance.client import wait_until
from tests.acceptance.house import TENANTS, House, Town, open_house
from tests.acceptance.post import Sink, ggrid_in
from tests.acceptance.sluice import Sluice

DOMAINS = tuple(domain for _, _, domain in TENANTS)
PLACES = {"mainWorkerCount": 2, "maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}


@dataclass(frozen=True)
class Post:
    """Two guards, each beside a Postfix of its own: one asked before the queue, one behind it."""

    house: House
    before: Postfix
    after: Postfix
    sink: Sink

    @property
    def seal(self) -> ResultSeal:
        return ResultSeal(read_ring((self.house.product.abby.folder / "secrets" / "contents"), "contents.key"))

    def settle(self) -> None:
        """Let what a test before left under way come to rest, and clear it away."""
        assert wait_until(lambda: self.before.waiting() + self.after.waiting() == 0)
        self.sink.clear()

    def explain(self, reply: str) -> dict[str, Any]:
        return self.house.client().explained(ggrid_in(reply))


@contextmanager
def open_post_office(engines: Engines, town: Town, folder: Path, sluice: Sluice) -> Iterator[Post]:
    """Start them all, clamd behind the sluice; a guard has two places."""
    queues = temporary_folder()
    with Sink() as sink:
        before = Postfix(queues / "before", "before-queue", DOMAINS, sink.port)
        after = Postfix(queues / "after", "after-queue", DOMAINS, sink.port)
        guards = [_beside(before, "beforeQueue", sluice), _beside(after, "afterQueue", sluice)]
        try:
            with open_house(engines, town, folder, guards=guards) as house:
                before.start()
                after.start()
                yield Post(house, before, after, sink)
        finally:
            before.stop()
            after.stop()
            remove_folder(queues)


def _beside(postfix: Postfix, mode: str, sluice: Sluice) -> Overrides:
    smtp = {"mode": mode, "listen": {"port": postfix.guard_port}, "nextHop": f"127.0.0.1:{postfix.back_port}"}
    return {**PLACES, "engines": {"clamav": {"address": sluice.address}}, "scanSources": {"smtp": smtp}}
