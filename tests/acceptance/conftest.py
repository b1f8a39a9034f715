"""One deployment for the whole run, in one process with the real engines, and one whose processes may be killed."""

from collections.abc import Iterator

import pytest

from tests.acceptance.client import Client
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.acceptance.pausable_clamd import PausableClamd
from tests.acceptance.postfix_deployment import PostfixDeployment, run_postfix_deployment
from tests.acceptance.trace_collector import Collector
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.samples import plain_message

PLACES = {"mainWorkerCount": 5, "maxGuardRequestsInProcessing": 5, "guardRequestThrottleThreshold": 5}


@pytest.fixture(scope="session")
def deployment(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    with run_deployment(engines, deployment_template, folder) as opened:
        yield opened


@pytest.fixture(scope="session")
def fresh(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Return a deployment that has no messages and list entries at first; tests may stop it."""
    with run_deployment(engines, deployment_template, tmp_path_factory.mktemp("fresh")) as opened:
        yield opened


@pytest.fixture(scope="session")
def client(deployment: Deployment) -> Client:
    """Return a caller whose token may do everything."""
    return deployment.client()


@pytest.fixture(scope="session")
def plain(engines: Engines) -> bytes:
    """Return a harmless message, signed by the domain that it comes from."""
    return engines.dns.sign(plain_message(), "pass.example")


@pytest.fixture(scope="session")
def pausable_clamd(engines: Engines) -> Iterator[PausableClamd]:
    with PausableClamd(engines.clamd.socket) as running:
        yield running


@pytest.fixture(scope="session")
def installed_restartable(
    engines: Engines,
    deployment_template: DeploymentTemplate,
    pausable_clamd: PausableClamd,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    guard = {**PLACES, "engines": {"clamav": {"address": pausable_clamd.address, "maxConcurrency": 3}}}
    folder = tmp_path_factory.mktemp("restartable")
    probed = {**guard, "health": {"host": "127.0.0.1", "port": free_port()}}
    guards = (guard, probed)
    with run_deployment(engines, deployment_template, folder, guards=guards, start=False, one_process=False) as opened:
        yield opened


@pytest.fixture
def restartable(installed_restartable: Deployment, pausable_clamd: PausableClamd) -> Deployment:
    """Start and return a deployment to stop and kill: two guards, five requests each, behind the pausable clamd."""
    pausable_clamd.resume()
    installed_restartable.product.start()
    return installed_restartable


@pytest.fixture(scope="session")
def running_mta(
    engines: Engines,
    deployment_template: DeploymentTemplate,
    pausable_clamd: PausableClamd,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PostfixDeployment]:
    folder = tmp_path_factory.mktemp("mta")
    with run_postfix_deployment(engines, deployment_template, folder, pausable_clamd) as running:
        yield running


@pytest.fixture
def mta(running_mta: PostfixDeployment) -> PostfixDeployment:
    """Return a deployment with two Postfix servers, both queues empty."""
    running_mta.settle()
    return running_mta


@pytest.fixture
def stoppable_engines(engines: Engines, client: Client, plain: bytes) -> Iterator[Engines]:
    """Return engines that a test may stop; start them afterwards and wait until the shared deployment has recovered."""
    yield engines
    for server in engines.servers:
        if not server.running:
            server.start()

    def recovered() -> bool:
        answer = client.submit(plain)
        well = answer.status == 200 and answer.result["verdict"] == "clean"
        return well and client.explain(answer.result["ggrid"]).status == 200

    assert wait_until(recovered, pause=0.2)


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture(scope="session")
def monitored(
    engines: Engines,
    deployment_template: DeploymentTemplate,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Return a guard with every scan source, digest, weekly reports and report mailbox, so that it has every metric.

    abby and guard have a process of their own, and send traces.
    """
    password = tmp_path_factory.mktemp("password") / "password"
    password.write_text("secret\n")
    mailbox = {"address": "spam@mail.example", "host": "127.0.0.1", "port": free_port(), "tls": "off"}
    mailbox |= {"user": "spam", "password": str(password)}
    tracing = {"tracing": {"endpoint": collector.url, "sampleRatio": 1}}
    guard = {
        **tracing,
        "scanSources": {
            "smtp": {"listen": {"port": free_port()}, "nextHop": f"127.0.0.1:{free_port()}"},
            "rspamdApi": {"listen": {"port": free_port()}, "allowWithoutSecret": True},
        },
        "quarantine": {"digest": {"link": "https://mail.example", "sender": "digest@mail.example"}},
        "weeklyReport": {"link": "https://mail.example", "sender": "reports@mail.example"},
        "reports": {
            "addresses": {"phishing@mail.example": "phishing"},
            "sender": "reports@mail.example",
            "mailboxes": [mailbox],
        },
    }
    folder = tmp_path_factory.mktemp("monitored")
    with run_deployment(
        engines, deployment_template, folder, guards=(guard,), abby=tracing, one_process=False
    ) as running:
        yield running
