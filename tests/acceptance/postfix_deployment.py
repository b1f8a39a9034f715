"""Two guards, each beside a Postfix of its own, and one sink behind both."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailwarden.crypto.keyring import read_ring
from mailwarden.quarantine.result_headers import ResultSeal
from tests.acceptance.deployment import TENANTS, Deployment, DeploymentTemplate, run_deployment
from tests.acceptance.pausable_clamd import PausableClamd
from tests.acceptance.smtp import Sink, ggrid_in
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.postfix import Postfix
from workshop.rig.product import Overrides

DOMAINS = tuple(domain for _, _, domain in TENANTS)
REPORT_ADDRESS = "phishing@company.example"
PLACES = {"mainWorkerCount": 2, "maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}


@dataclass(frozen=True)
class PostfixDeployment:
    """Two guards, each beside a Postfix of its own: one asked before the queue, one behind it."""

    deployment: Deployment
    before: Postfix
    after: Postfix
    sink: Sink

    @property
    def seal(self) -> ResultSeal:
        return ResultSeal(read_ring((self.deployment.product.abby.folder / "secrets" / "contents"), "contents.key"))

    def settle(self) -> None:
        """Wait until both queues are empty, and clear the sink."""
        assert wait_until(lambda: self.before.waiting() + self.after.waiting() == 0)
        self.sink.clear()

    def explain(self, reply: str) -> dict[str, Any]:
        return self.deployment.client().explained(ggrid_in(reply))


@contextmanager
def run_postfix_deployment(
    engines: Engines, deployment_template: DeploymentTemplate, folder: Path, pausable_clamd: PausableClamd
) -> Iterator[PostfixDeployment]:
    """Start everything, with clamd behind the proxy; each guard accepts two requests."""
    queues = temporary_folder()
    with Sink() as sink:
        before = Postfix(queues / "before", "before-queue", DOMAINS, sink.port)
        after = Postfix(queues / "after", "after-queue", DOMAINS, sink.port)
        guards = [_beside(before, "beforeQueue", pausable_clamd), _beside(after, "afterQueue", pausable_clamd)]
        try:
            with run_deployment(engines, deployment_template, folder, guards=guards, one_process=False) as deployment:
                before.start()
                after.start()
                yield PostfixDeployment(deployment, before, after, sink)
        finally:
            before.stop()
            after.stop()
            remove_folder(queues)


def _beside(postfix: Postfix, mode: str, pausable_clamd: PausableClamd) -> Overrides:
    smtp = {"mode": mode, "listen": {"port": postfix.guard_port}, "nextHop": f"127.0.0.1:{postfix.back_port}"}
    reports = {"addresses": {REPORT_ADDRESS: "phishing"}, "sender": "reports@company.example"}
    engines = {"clamav": {"address": pausable_clamd.address}}
    return {**PLACES, "engines": engines, "scanSources": {"smtp": smtp}, "reports": reports}
