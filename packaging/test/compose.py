"""Checks the compose file: part of `make check-long ONLY=images`; prints one line per check.

Builds the images of the engines, starts everything by the commands of docs/compose.md, sends mail through Postfix and
removes everything. Needs root, podman, mmdebstrap and the image of `make image`. Containers run in mount and network
namespaces of their own, because podman would otherwise change the host's networks.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import packages
import send
from image import IMAGE, PROBE, PYTHON
from locked_tools import install_tools
from summary import Summary

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
TOOLS = ROOT / "run" / "compose"
BASE = "localhost/mailwarden-test-base"
ENGINES = ("postgresql", "redis", "resolver", "rspamd", "clamav", "postfix")
OURS = ("mailwarden",)
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}",
    "STORAGE_DRIVER": "overlay",
    "BUILDAH_ISOLATION": "chroot",
    "COMPOSE_FILE": "compose.yml:../../packaging/test/compose-internet.yml",
    "MAILWARDEN_BASE": BASE,
    "MAILWARDEN_IMAGE": IMAGE,
}
# Signatures cannot be downloaded here. clamd waits for files of these names.
SIGNATURES = "cd /var/lib/clamav && cat >test.ndb && mkdir -p main.inc daily.inc"
DIGEST = "import hashlib; print(hashlib.sha256(open('/etc/mailwarden/token', 'rb').read()).hexdigest())"


class Stack:
    """The containers, in namespaces that a process of ours keeps open."""

    def __init__(self, holder: int) -> None:
        self._holder = holder

    def run(self, *words: str, given: str | None = None, seconds: int = 300) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", f"--target={self._holder}", "--mount", "--net", f"--wd={COMPOSE}"]
        return command(*enter, *words, given=given, seconds=seconds)

    def execute(self, service: str, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.run("podman-compose", "exec", "-T", service, *words, given=given)


def command(*words: str, given: str | None = None, seconds: int = 300) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of the compose file; return its output, and code 124 after too long a time."""
    try:
        return subprocess.run(
            words,
            cwd=COMPOSE,
            env=ENVIRONMENT,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(words, 124, f"no end after {seconds} s: {error.output!r}")


def documented(heading: str) -> list[str]:
    """Return the commands of a section of docs/compose.md, one for each line."""
    return [line for block in packages.documented(heading, "docs/compose.md") for line in block.splitlines()]


def make_base() -> None:
    """Make the base image from a clean root: no registry is asked."""
    root = TOOLS / "root"
    subprocess.run(["packaging/clean-root.sh", "bookworm", str(root)], check=True, cwd=ROOT)
    with subprocess.Popen(["tar", "--create", f"--directory={root}", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "--quiet", "-", BASE], check=True, env=ENVIRONMENT, stdin=tar.stdout)
    shutil.rmtree(root)


@contextmanager
def namespaces() -> Iterator[Stack]:
    # crun and runc need the hierarchy of cgroups that podman chose; the second one is in their way.
    script = "umount -l /sys/fs/cgroup/unified 2>/dev/null; ip link set lo up; echo ready; exec sleep infinity"
    unshare = ["unshare", "--mount", "--net", "sh", "-c", script]
    with subprocess.Popen(unshare, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        try:
            yield Stack(holder.pid)
        finally:
            holder.kill()


def eventually(holds: Callable[[], bool], seconds: int = 60) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def delivered(stack: Stack) -> int:
    return stack.execute("postfix", "sh", "-c", "cat /var/mail/inbox/new/*").stdout.count("X-Mailwarden-Verdict: clean")


def held(stack: Stack) -> str:
    return stack.execute("mailwarden", "mailwarden", "quarantine", "list").stdout


def send_message(stack: Stack, kind: str) -> subprocess.CompletedProcess[str]:
    return stack.run(sys.executable, str(Path(send.__file__)), kind)


def check_mail(checks: Summary, stack: Stack, began: float) -> None:
    plain = send_message(stack, "plain")
    checks.line("a plain message is accepted by Postfix", well=plain.returncode == 0, output=plain.stdout)
    arrived = eventually(lambda: delivered(stack) == 1)
    text = f"it is delivered with its verdict, {time.monotonic() - began:.0f} s after the command"
    checks.line(text, well=arrived, output=stack.run("podman-compose", "logs", "--tail=5").stdout)
    eicar = send_message(stack, "eicar")
    checks.line("EICAR is accepted by Postfix", well=eicar.returncode == 0, output=eicar.stdout)
    listed = held(stack)
    well = "malware" in listed and "Package test eicar" in listed
    checks.line("mailwarden quarantine list: EICAR is held", well=well, output=listed)
    checks.line("and not delivered", well=delivered(stack) == 1)


def check_inside(checks: Summary, stack: Stack) -> None:
    """Ask the running containers what their first process may do."""
    for service in OURS:
        probe = stack.execute(service, PYTHON, "-c", PROBE)
        try:
            seen = json.loads(probe.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            checks.line(f"{service}: a probe inside", well=False, output=probe.stdout)
            continue
        state = seen["writes"].pop("/var/lib/mailwarden/x")
        refused = {"Read-only file system"} == set(seen["writes"].values())
        checks.line(f"{service}: runs as user {seen['user']}", well=seen["user"] == 65532)
        checks.line(f"{service}: the capability sets are empty", well=seen["capabilities"])
        checks.line(f"{service}: gains no privileges", well=seen["noNewPrivileges"])
        text = f"{service}: the root is read-only: {', '.join(seen['writes'])}"
        checks.line(text, well=refused, output=str(seen["writes"]))
        checks.line(f"{service}: its state can be written", well=state == "written")
    empty = [each for each in ENGINES if "0" * 16 in stack.execute(each, "grep", "CapEff", "/proc/1/status").stdout]
    checks.line(f"no capabilities: {', '.join(empty)}", well=empty == [each for each in ENGINES if each != "postfix"])
    for service in (*OURS, *ENGINES):
        health = stack.run("podman", "healthcheck", "run", f"mailwarden_{service}_1")
        checks.line(f"{service}: healthy", well=health.returncode == 0, output=health.stdout)


def check_operation(checks: Summary, stack: Stack) -> None:
    for line in documented("## Test it"):
        done = stack.run("sh", "-c", line.replace(" exec ", " exec -T "))
        checks.line(line, well=done.returncode == 0, output=done.stdout)
    pid = stack.run("podman", "inspect", "--format={{.State.Pid}}", "mailwarden_mailwarden_1").stdout.strip()
    os.kill(int(pid), signal.SIGKILL)
    again = send_message(stack, "plain")
    text = "mailwarden restarts after kill -9, and the next message is delivered"
    checks.line(text, well=eventually(lambda: delivered(stack) == 2), output=again.stdout)
    token = stack.execute("mailwarden", PYTHON, "-c", DIGEST).stdout
    start(stack)
    kept = eventually(lambda: "is there and is kept" in stack.run("podman", "logs", "mailwarden_init_1").stdout)
    same = token == stack.execute("mailwarden", PYTHON, "-c", DIGEST).stdout
    checks.line("the same command again keeps configuration and secrets", well=kept and same)


def check_restore(checks: Summary, stack: Stack, folder: str) -> None:
    """Back up, remove everything, restore: a held message is there, and mail is delivered again."""
    lines = [line.replace("/var/backups/", f"{folder}/") for line in documented("## Back up and restore")]
    backup, restore = lines[:3], lines[3:]
    for line in (*backup, *documented("## Remove"), *restore):
        done = stack.run("sh", "-c", line)
        checks.line(line.replace(folder, "/var/backups"), well=done.returncode == 0, output=done.stdout)
    checks.line("EICAR is still held", well=eventually(lambda: "Package test eicar" in held(stack)), output=held(stack))
    before = delivered(stack)
    again = send_message(stack, "plain")
    checks.line("mail is delivered again", well=eventually(lambda: delivered(stack) == before + 1), output=again.stdout)


def start(stack: Stack) -> subprocess.CompletedProcess[str]:
    (up,) = (line for line in documented("## Start") if line.endswith(" up -d"))
    return stack.run("sh", "-c", up)


def check_stack(checks: Summary) -> None:
    with namespaces() as stack:
        try:
            began = time.monotonic()
            up = start(stack)
            checks.line("podman-compose up -d", well=up.returncode == 0, output=up.stdout)
            if up.returncode:
                return
            stack.execute("clamav", "sh", "-c", SIGNATURES, given=f"Test.Eicar:0:0:{send.EICAR.encode().hex()}\n")
            check_mail(checks, stack, began)
            check_inside(checks, stack)
            check_operation(checks, stack)
            with tempfile.TemporaryDirectory() as folder:
                check_restore(checks, stack, folder)
        finally:
            for line in documented("## Remove"):
                stack.run("sh", "-c", line)
            left = [
                *stack.run("podman", "ps", "--all", "--format={{.Names}}", "--filter=name=mailwarden").stdout.split(),
                *stack.run("podman", "volume", "ls", "--quiet", "--filter=name=mailwarden").stdout.split(),
                *stack.run("podman", "network", "ls", "--quiet", "--filter=name=mailwarden").stdout.split(),
            ]
            checks.line("no container, volume or network is left", well=not left, output=" ".join(left))


def check_docker_compose(checks: Summary) -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        print("left out: docker-compose config (install docker-compose 2 of Debian 13)")
        return
    valid = command(tool, "config", "--quiet")
    checks.line("docker-compose config", well=valid.returncode == 0, output=valid.stdout)


def main() -> int:
    checks = Summary("compose")
    if os.geteuid() != 0 or command("podman", "image", "exists", IMAGE).returncode:
        print(f"Run this as root, after `make image`: {IMAGE} is needed.", file=sys.stderr)
        return 2
    install_tools(TOOLS, "compose")  # podman-compose of Debian 12 cannot share a network between services
    make_base()
    check_docker_compose(checks)
    try:
        began = time.monotonic()
        built = command("podman-compose", "build", seconds=1_200)
        text = f"the images of the engines are built, {time.monotonic() - began:.0f} s with downloads"
        checks.line(text, well=built.returncode == 0, output=built.stdout)
        if built.returncode == 0:
            check_stack(checks)
    finally:
        made = [BASE, *(f"localhost/mailwarden-{engine}" for engine in ENGINES)]
        removed = command("podman", "rmi", "--force", *made)
        checks.line("the images are removed", well=removed.returncode == 0, output=removed.stdout)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
