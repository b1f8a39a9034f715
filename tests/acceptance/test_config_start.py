"""What stops the start: a mistake in a configuration is told with its place, and nothing listens."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rig.product import CONFIGURATION_FILES, Overrides, Service
from tests.acceptance.deployment import Deployment

pytestmark = pytest.mark.slow

GOOD = "a" * 64


def start(deployment: Deployment, folder: Path, kind: str, overrides: Overrides) -> tuple[int, str]:
    """Start a process with a copy of a good configuration and these changes; return its exit code and its words."""
    shutil.copytree(deployment.product.abby.folder, folder)
    Service(kind, kind, folder, 1).configure(overrides)
    done = subprocess.run(
        [sys.executable, "-m", "mailwarden", "serve", kind, "--config", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.spec("5 staticApiTokens")
@pytest.mark.contract("3 token mistakes")
@pytest.mark.parametrize(
    ("entries", "mistakes"),
    [
        pytest.param(
            (
                {"name": "unknown permission", "token": GOOD, "permissions": ["messageQueue.everything"]},
                {"name": "not a tenant", "token": "b" * 64, "permissions": ["tenant:acme"]},
                {"name": "short", "token": "d" * 31},
            ),
            ("messageQueue.everything", "tenant:acme", "shorter than 32"),
            id="one token",
        ),
        pytest.param(
            ({"name": "twice", "token": GOOD}, {"name": "twice", "token": "e" * 64}, {"name": "other", "token": GOOD}),
            ("two tokens are named `twice`", "two users have the same token"),
            id="two tokens",
        ),
    ],
)
def test_all_token_errors_are_reported_and_abby_does_not_start(deployment, tmp_path, entries, mistakes):
    code, words = start(deployment, tmp_path / "copy", "abby", {"staticApiTokens": entries})

    assert code not in (0, -9)
    assert [mistake for mistake in mistakes if mistake not in words] == []
    assert words.count(str(CONFIGURATION_FILES["abby"])) >= len(mistakes), "each with its file"
    assert GOOD not in words


@pytest.mark.spec("1 serviceProviders")
def test_abby_does_not_start_without_its_guards(deployment, tmp_path):
    code, words = start(deployment, tmp_path / "copy", "abby", {"serviceProviders": {"core": {"hosts": []}}})

    assert code not in (0, -9)
    assert "serviceProviders.core.hosts" in words


@pytest.mark.parametrize("kind", ["abby", "guard"])
def test_a_port_in_use_is_reported_in_one_line(deployment, tmp_path, kind):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, words = start(deployment, tmp_path / "copy", kind, {"listen": {"host": "127.0.0.1", "port": port}})

    assert code == 2
    assert f"mailwarden: Cannot listen on 127.0.0.1 port {port}: Address already in use." in words
    assert "Traceback" not in words


@pytest.mark.contract("3 admission start")
@pytest.mark.parametrize(
    ("threshold", "maximum"), [pytest.param(21, 20, id="above"), pytest.param(0, 20, id="below 1")]
)
def test_guard_does_not_start_with_a_threshold_out_of_range(deployment, tmp_path, threshold, maximum):
    code, words = start(
        deployment,
        tmp_path / "copy",
        "guard",
        {"guardRequestThrottleThreshold": threshold, "maxGuardRequestsInProcessing": maximum},
    )

    assert code not in (0, -9)
    assert "guardRequestThrottleThreshold" in words
