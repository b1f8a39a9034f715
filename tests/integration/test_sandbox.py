"""Code that runs inside a worker reaches nothing; the same code without the sandbox does."""

import asyncio
import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import mailwarden
from mailwarden.errors import ConfigurationError
from mailwarden.pipeline.preview_worker import NO_SANDBOX
from mailwarden.pipeline.previews import Previews
from mailwarden.pipeline.sandbox import DISABLED, REQUIRED, SandboxMode, SandboxUnavailable, check_out_of_reach
from mailwarden.pipeline.worker_pool import Timeouts, WorkerFailed, WorkerPool
from mailwarden.pipeline.worker_steps import Frame
from mailwarden.serving.spool import Spooled, SpoolWriter
from tests.integration import sandbox_probes
from tests.integration.sandbox_probes import ENDS_WORKER, PROBES

ORDINARY_USER = 4_711
NEEDED = [name for name in PROBES if name.startswith("needed_")]
HOSTILE = [name for name in PROBES if name not in NEEDED]
# Calls that this kernel may have been built without; then there is nothing to deny.
MAY_LACK = {"x32_call", "i386_call", "bpf", "keyring", "performance_events", "user_fault_descriptor", "io_uring"}
AS_ROOT = os.geteuid() == 0
Outcomes = dict[str, str]


@contextmanager
def targets(folder: Path) -> Iterator[dict[str, str]]:
    """Make everything that probes try to reach: files of guard, a message of another sender, a process."""
    folder.chmod(0o777)
    named = {}
    for name in ("configuration", "secret", "spool", "spare", "doomed"):
        path = folder / name
        path.write_text("not for workers")
        path.chmod(0o666)  # the sandbox must hold where file permissions do not
        named[name] = str(path)
    spooled = os.open(folder / "spool", os.O_RDONLY)
    named |= {"folder": str(folder), "spooled": f"/proc/{os.getpid()}/fd/{spooled}", "abstract": f"probe-{os.getpid()}"}
    held = ctypes.create_string_buffer(b"held by the parent")
    with (
        socket.socket(socket.AF_UNIX) as listening,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim,
    ):
        listening.bind("\0" + named["abstract"])
        listening.listen(100)
        try:
            yield named | {"victim": str(victim.pid), "address": str(_address_in(victim.pid))}
        finally:
            victim.kill()
            os.close(spooled)
            del held


def _address_in(pid: int) -> int:
    return int(Path(f"/proc/{pid}/maps").read_text().split("-", 1)[0], 16)


def message_of(name: str, named: dict[str, str]) -> Spooled:
    return Spooled.of(b"Content-Type: application/json\r\n\r\n" + json.dumps({"probe": name, **named}).encode())


async def run_probes(sandbox: SandboxMode, user: int, folder: Path) -> Outcomes:
    """Return the outcome of each probe: `done`, the name of the error that stopped it, or `ended`."""
    pool = WorkerPool(1, 1024, Timeouts(), sandbox=sandbox)
    program = (str(Path(sandbox_probes.__file__ or "")), str(user))
    pool.lanes[0].settings = msgspec.structs.replace(pool.lanes[0].settings, program=program)
    outcomes: Outcomes = {}
    await pool.start()
    try:
        with targets(folder) as named:
            for name in (*(name for name in PROBES if name not in ENDS_WORKER), *ENDS_WORKER):
                outcomes[name] = await run_probe(pool, name, named)
    finally:
        await pool.stop()
    return outcomes


async def run_probe(pool: WorkerPool, name: str, named: dict[str, str]) -> str:
    frames: list[Frame] = []
    try:
        await pool.run(message_of(name, named), frames.append)
    except WorkerFailed:
        return "ended"
    report = next(frame.report for frame in frames if frame.report.analyzer == "probe")
    assert report.failure is None, report.failure
    return str(report.findings[0].facts["errno"]) if report.findings else "done"


def outcomes_of(sandbox: SandboxMode, user: int, factory: pytest.TempPathFactory) -> Outcomes:
    os.environ["MAILWARDEN_PROBE"] = "secret"
    try:
        return asyncio.run(run_probes(sandbox, user, factory.mktemp("targets")))
    finally:
        del os.environ["MAILWARDEN_PROBE"]


@pytest.fixture(scope="module")
def sandboxed(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(REQUIRED, 0, tmp_path_factory)


@pytest.fixture(scope="module")
def sandboxed_ordinary(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(REQUIRED, ORDINARY_USER, tmp_path_factory)


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(DISABLED, 0, tmp_path_factory)


def expected(name: str) -> set[str]:
    if name == "i386_call":
        return {"ended"}
    if name == "x32_call":
        return {"ended", "EPERM", "ENOSYS"}
    return {"EPERM", "EACCES", "ENOSYS"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sandboxed_worker_is_stopped(name: str, sandboxed: Outcomes):
    assert sandboxed[name] in expected(name)


@pytest.mark.skipif(not AS_ROOT, reason="only root can start a worker as another user")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_sandboxed_worker_of_an_ordinary_user_is_stopped(name: str, sandboxed_ordinary: Outcomes):
    assert sandboxed_ordinary[name] in expected(name)


@pytest.mark.skipif(not AS_ROOT, reason="an ordinary user may not do all of this anyway")
@pytest.mark.parametrize("name", HOSTILE)
def test_the_same_probe_succeeds_without_the_sandbox(name: str, free: Outcomes):
    succeeded = "ended" if name == "execve" else "done"
    lacks = name in MAY_LACK and (free[name] in {"ENOSYS", "ENOENT", "ENODEV"} or platform.machine() != "x86_64")
    assert free[name] == succeeded or lacks, "a kernel without the call has nothing to deny"


@pytest.mark.parametrize("name", NEEDED)
def test_required_operations_work_in_the_sandbox(name: str, sandboxed: Outcomes):
    assert sandboxed[name] == "done"


async def test_the_message_of_a_worker_cannot_be_written_to(tmp_path: Path):
    writer = SpoolWriter(tmp_path)
    await writer.write(b"x" * 2_000_000)
    spooled = await writer.finish()
    file = spooled.open_to_read()
    assert file is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(file, b"y")
    os.close(file)
    spooled.close()


@pytest.mark.parametrize(
    ("layer", "said"), [("allow_only_reading", "Landlock"), ("allow_only_listed_calls", "system-call filter")]
)
async def test_a_worker_that_cannot_be_sandboxed_takes_no_message(layer: str, said: str, tmp_path: Path):
    program = tmp_path / "refused.py"
    refuse = f"sandbox.{layer} = lambda *_: os.close(-1)"
    program.write_text(f"import os\nfrom mailwarden.pipeline import sandbox, worker\n{refuse}\nworker.main()\n")
    pool = WorkerPool(1, 1024, Timeouts())
    pool.lanes[0].settings = msgspec.structs.replace(pool.lanes[0].settings, program=(str(program),))
    with pytest.raises(ConfigurationError, match=f"{said}.*Bad file descriptor"):
        await pool.start()
    await pool.stop()


def test_configuration_must_not_lie_where_workers_may_read(tmp_path: Path):
    check_out_of_reach(tmp_path)
    with pytest.raises(SandboxUnavailable, match="Move the configuration"):
        check_out_of_reach(Path(mailwarden.__file__).parent / "settings")


async def test_a_preview_without_a_sandbox_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mailwarden.pipeline.previews.PROGRAM", ("-c", f"import sys; sys.exit({NO_SANDBOX})"))
    preview = await Previews().of(Spooled.of(b"Content-Type: text/html\r\n\r\n<p>Hello"))
    assert "sandbox cannot be set up" in preview.document
