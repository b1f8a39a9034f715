"""Checks the image: `make check-long ONLY=images`; prints one line per check.

Needs root, podman and the image of `make image`. Containers run in mount and network namespaces of their own, because
podman would otherwise change the host's networks.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from packages import ready
from summary import Summary

from mailwarden import __version__

ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("MAILWARDEN_IMAGE", f"localhost/mailwarden:{__version__}")
GOAL_MB = 280  # 271 with Vectorscan and its phrases, which came after the first goal
ENVIRONMENT = {"STORAGE_DRIVER": "overlay", **os.environ}
PYTHON = "/usr/lib/mailwarden/bin/python"
LOCKED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
PROBE = """
import json, os
def write(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
    return "written"
status = dict(line.split(":", 1) for line in open("/proc/1/status"))
print(json.dumps({
    "user": os.getuid(),
    "capabilities": {status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "CapInh")} == {"0" * 16},
    "noNewPrivileges": status["NoNewPrivs"].strip() == "1",
    "programs": sorted(os.listdir("/usr/bin")),
    "writes": {path: write(path) for path in ("/x", "/usr/x", "/etc/mailwarden/x", "/var/lib/mailwarden/x")},
}))
"""
SELF_TESTS = """
import asyncio
from mailwarden.pipeline.self_tests import READERS, YARA_ENGINE
from mailwarden.pipeline.worker_pool import Timeouts, Worker, WorkerSettings
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.telemetry.self_tests import BASIC, require_known_answers
async def start():
    worker = await Worker.start(WorkerSettings(memory=2_048, timeouts=Timeouts()))
    print(", ".join((*worker.layers, f"phrases by {worker.phrases}")))
    await worker.end()
require_known_answers("The image", BASIC, READERS, YARA_ENGINE, CRYPTOGRAPHY)
asyncio.run(start())
"""


def run(*words: str, entrypoint: str = "") -> subprocess.CompletedProcess[str]:
    """Run a container of the image with everything taken away that it does not need."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = ["podman", "run", "--rm", *LOCKED, "--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=4096:4096"]
    command += ["--entrypoint", entrypoint] if entrypoint else []
    # crun and runc need the hierarchy of cgroups that podman chose; the second one is in their way.
    script = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *command, IMAGE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )


def main() -> int:
    if not ready("podman"):
        return 2
    checks = Summary("image")
    shown = subprocess.run(
        ["podman", "image", "inspect", IMAGE, "--format", "{{.Size}}"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    if shown.returncode:
        print(f"There is no {IMAGE}: run `make image` first.", file=sys.stderr)
        return 2
    size = int(shown.stdout) / 1_000_000
    checks.line(f"{size:.0f} MB, goal {GOAL_MB} MB", well=size < GOAL_MB)
    version = run("--version")
    checks.line(version.stdout.strip(), well=version.stdout == f"mailwarden {__version__}\n", output=version.stdout)
    probe = run("-c", PROBE, entrypoint=PYTHON)
    try:
        seen = json.loads(probe.stdout)
    except ValueError:
        checks.line("a probe inside", well=False, output=probe.stdout)
        return checks.end()
    checks.line(f"runs as user {seen['user']}", well=seen["user"] == 65532)
    checks.line("the capability sets are empty", well=seen["capabilities"])
    checks.line("it gains no privileges", well=seen["noNewPrivileges"])
    refused = all(answer == "Read-only file system" for answer in seen["writes"].values())
    checks.line(f"the root is read-only: {', '.join(seen['writes'])}", well=refused, output=str(seen["writes"]))
    checks.line(f"programs: {', '.join(seen['programs'])}", well=seen["programs"] == ["mailwarden", "python3.11"])
    shell = run("-c", "true", entrypoint="/bin/sh")
    checks.line(
        "there is no shell", well=shell.returncode != 0 and "no such file" in shell.stdout.lower(), output=shell.stdout
    )
    tested = run("-c", SELF_TESTS, entrypoint=PYTHON)
    checks.line(
        f"self-tests pass; a worker starts in its sandbox: {tested.stdout.strip()}",
        well=tested.returncode == 0 and "phrases by vectorscan" in tested.stdout,
    )
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
