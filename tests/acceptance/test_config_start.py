"""What stops the start: a mistake in a configuration is told with its place, and nothing listens."""

import io
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from mailwarden.cli.main import main
from tests.acceptance.deployment import Deployment
from workshop.rig.product import CONFIGURATION_FILES, Overrides, Service

pytestmark = pytest.mark.slow

GOOD = "a" * 64


def changed(deployment: Deployment, folder: Path, kind: str, overrides: Overrides) -> list[str]:
    """Copy a good configuration with these changes, and return the command that starts a process with it."""
    shutil.copytree(deployment.product.abby.folder, folder)
    Service(kind, kind, folder, 1).configure(overrides)
    return ["serve", kind, "--config", str(folder)]


def start(deployment: Deployment, folder: Path, kind: str, overrides: Overrides) -> tuple[int, str]:
    """Run the command here, for the configuration is all that it reads; return its exit code and its words."""
    words = io.StringIO()
    with redirect_stderr(words), ThreadPoolExecutor(1) as thread:
        # In a thread of its own no server can start: signals are for the first one.
        code = thread.submit(main, changed(deployment, folder, kind, overrides)).result()
    return code, words.getvalue()


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


@pytest.mark.parametrize("kind", ["abby", pytest.param("guard", marks=pytest.mark.long)])
def test_a_port_in_use_is_reported_in_one_line(deployment, tmp_path, kind):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = changed(deployment, tmp_path / "copy", kind, {"listen": {"host": "127.0.0.1", "port": port}})
        command = [sys.executable, "-m", "mailwarden", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert f"mailwarden: Cannot listen on 127.0.0.1 port {port}: Address already in use." in done.stderr
    assert "Traceback" not in done.stderr


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
