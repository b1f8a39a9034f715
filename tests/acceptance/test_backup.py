"""A restored backup serves: a held message is released byte for byte, an API key works, a list entry acts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.client import Client, envelope
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_command, run_deployment, wait_for_lists
from tests.acceptance.list_client import modified
from tests.acceptance.smtp import Sink, send
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.product import GuardInAbby, Product, Service
from workshop.rig.samples import plain_message, spam_message

pytestmark = pytest.mark.slow
RESTORED = "acceptance_restored"
BLOCKED = "blocked@pass.example"


def test_a_restored_backup_releases_messages_and_accepts_keys(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path: Path
):
    with Sink() as sink:
        port = free_port()
        guard = {"scanSources": {"smtp": {"listen": {"port": port}, "nextHop": f"127.0.0.1:{sink.port}"}}}
        message, plain = (engines.dns.sign(each, "pass.example") for each in (spam_message(), plain_message()))
        with run_deployment(engines, deployment_template, tmp_path / "first", guards=(guard,)) as deployment:
            assert modified(deployment.lists().add("sender-block", {"entry": BLOCKED})) == 1
            assert send(port, message, forward=True).startswith("250")
            uid = held(deployment.client())
            folder = deployment.product.abby.folder
            run_command("backup", str(tmp_path / "backup.tar"), "--config", str(folder))
        url = engines.postgresql.create_database(RESTORED)
        try:
            target = tmp_path / "second" / "config"
            target.parent.mkdir()
            words = ("--config", str(target), "--database-url", url)
            run_command("restore", str(tmp_path / "backup.tar"), *words)
            product = restored_product(deployment.product, target)
            with product:
                product.start()
                check(replace(deployment, product=product), sink, uid, message, plain)
        finally:
            engines.postgresql.drop_database(RESTORED)


def restored_product(product: Product, target: Path) -> Product:
    abby = Service("abby", "abby", target, product.abby.port)
    abby.share()
    return Product(target.parent, abby, [GuardInAbby("guard-1", abby, product.guards[0].port)])


def held(client: Client) -> str:
    def found() -> list[dict[str, str]]:
        return list(client.call("GET", "/v1/quarantine").json["messages"])

    assert wait_until(lambda: len(found()) == 1)
    return found()[0]["uid"]


def check(deployment: Deployment, sink: Sink, uid: str, message: bytes, plain: bytes) -> None:
    assert deployment.lists().names("sender-block") == [BLOCKED], "the API key is valid"
    wait_for_lists(deployment)
    assert deployment.client().submit(plain).result["decision"] == "deliver"
    sent = deployment.client().submit(plain, envelope(envelopeFrom=BLOCKED))
    assert sent.result["decision"] != "deliver", "the list entry acts"

    body, headers = json.dumps({}).encode(), {"Content-Type": "application/json"}
    path = f"/v1/quarantine/{uid}/release"
    assert deployment.client().call("POST", path, headers=headers, data=body).status == 202
    (released,) = sink.take()
    assert released.below(message) is not None
