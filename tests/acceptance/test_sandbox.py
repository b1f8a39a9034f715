"""guard where workers cannot be sandboxed: it does not start unless its configuration says so, and then shows it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.deployment import guard_status
from workshop.rig.product import Service

pytestmark = pytest.mark.slow

# Starts a program in a host that forbids Landlock, as an old kernel or a strict service manager does.
WITHOUT_LANDLOCK = """
import ctypes, os, sys
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
context = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))
assert library.seccomp_rule_add_array(context, 0x00050001, 444, 0, None) == 0
assert library.seccomp_load(context) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_guard_does_not_start_where_workers_cannot_be_sandboxed(deployment, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(deployment.product.guards[0].folder, folder)
    launcher = tmp_path / "without_landlock.py"
    launcher.write_text(WITHOUT_LANDLOCK)
    command = [sys.executable, str(launcher), "-m", "mailwarden", "serve", "guard", "--config", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode not in (0, -9)
    assert "The worker sandbox cannot be set up. Landlock is not available" in done.stderr
    assert "SystemCallFilter=@sandbox" in done.stderr, "what to do"


def test_guard_shows_the_sandbox_of_its_workers(deployment):
    layers = guard_status(deployment, 0)["workerSandbox"]
    assert layers[-1] == "seccomp"
    assert any(layer.startswith("landlock ") for layer in layers)


def test_guard_shows_that_the_sandbox_is_disabled(restartable):
    guard = restartable.product.guards[0]
    guard.stop()
    guard.configure({"workers": {"sandbox": "disabled"}})
    guard.start()
    try:
        assert guard_status(restartable, 0)["workerSandbox"] == []
        assert '"worker_sandbox_disabled"' in _log(guard)
    finally:
        guard.stop()
        guard.configure({"workers": {"sandbox": "required"}})


def _log(guard: Service) -> str:
    return (guard.folder.parent / f"{guard.name}.log").read_text("utf-8")
