"""Secrets are rotated while messages are held and keys exist: with real processes, nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.crypto.keyring import read_ring
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_command, run_deployment
from tests.acceptance.held import keep
from tests.integration.held_messages import RAW
from workshop.rig.engines import Engines

pytestmark = pytest.mark.slow


@pytest.fixture
def rotated(engines: Engines, deployment_template: DeploymentTemplate, tmp_path: Path) -> Iterator[Deployment]:
    with run_deployment(engines, deployment_template, tmp_path / "rotated") as opened:
        yield opened


def secrets(deployment: Deployment, *words: str) -> str:
    return run_command("secrets", *words, "--config", str(deployment.product.abby.folder))


def restart(deployment: Deployment) -> None:
    deployment.product.stop()
    deployment.product.start()


def test_held_messages_and_api_keys_outlast_rotations(rotated: Deployment):
    folder = rotated.product.abby.folder
    contents = folder / "secrets" / "contents"
    first = keep(rotated)
    old = read_ring(contents, "contents.key").current.name
    for name in ("contents", "pepper"):
        assert "is the current key" in secrets(rotated, "rotate", name)
    restart(rotated)
    second = keep(rotated, raw=RAW + b"more\r\n")

    assert message_of(rotated, first) == (200, RAW)
    assert message_of(rotated, second) == (200, RAW + b"more\r\n")
    assert rotated.lists().call("getLists", {}).status == 200, "an API key of before the rotation"

    whole = contents.read_text()
    lines = whole.splitlines(keepends=True)
    contents.write_text("".join(line for line in lines if "retired=" not in line))
    rotated.product.abby.restart()  # it opens held messages
    status, body = message_of(rotated, first)
    assert status == 409
    assert f"needs the key {old}".encode() in body, "a lost key is named"
    assert message_of(rotated, second)[0] == 200

    contents.write_text(whole)
    assert "1 held messages encrypted" in secrets(rotated, "reencrypt", "contents")
    rotated.product.abby.restart()
    assert message_of(rotated, first) == (200, RAW)


def message_of(deployment: Deployment, uid: str) -> tuple[int, bytes]:
    answer = deployment.client().call("GET", f"/v1/quarantine/{uid}/message")
    return answer.status, answer.body
