"""The sandbox of processes that read hostile bytes: once entered, it holds until the process ends.

Required layers: no new privileges; Landlock (read code and libraries, nothing else); a system-call filter (no socket,
no program, no other process, no writing). If the kernel permits it, the process also gets a user of its own or a user
namespace, and a network namespace. Decision 32 gives the reasons; `docs/install.md` is for operators.

Security: fails closed. A process that cannot enter the sandbox reads no message.
"""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import mailwarden
from mailwarden.errors import ConfigurationError
from mailwarden.pipeline.landlock import allow_only_reading
from mailwarden.pipeline.system_calls import allow_only_listed_calls

SandboxMode = Literal["required", "disabled"]
REQUIRED: SandboxMode = "required"
DISABLED: SandboxMode = "disabled"

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
_CAPABILITIES_VERSION = 0x20080522
_NOBODY = 65_534
# Shared libraries, and the data that libraries read: the same on every machine, and no secret.
_SYSTEM_PATHS = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/magic",
    "/usr/share/file",
    "/usr/share/misc",
    "/usr/share/tesseract-ocr",
    "/usr/share/zoneinfo",
)
_PASSED_ON = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TZ")


class SandboxUnavailable(ConfigurationError):
    """The sandbox cannot be entered on this machine; the message says what is missing and what to do."""


def environment() -> dict[str, str]:
    """Return the environment variables that a sandboxed process starts with: none that may carry a secret."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if "PYTHONPATH" in passed:  # the process starts in another folder
        passed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, passed["PYTHONPATH"].split(os.pathsep)))
    return passed


def code_paths() -> tuple[Path, ...]:
    """Return the folders of the interpreter's, the dependencies' and our own code."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(Path(path).resolve() for path in dict.fromkeys([*named, *mailwarden.__path__]))


def readable_paths() -> tuple[Path, ...]:
    """Return every path that a sandboxed process may read."""
    return (*code_paths(), *(Path(path) for path in _SYSTEM_PATHS))


def check_out_of_reach(folder: Path) -> None:
    """Raise SandboxUnavailable if the configuration lies below a path that sandboxed processes may read."""
    folder = folder.resolve()
    for path in readable_paths():
        if folder.is_relative_to(path.resolve()):
            sentence = f"The configuration folder {folder} lies below {path}, which sandboxed workers may read."
            raise SandboxUnavailable(f"{sentence} Move the configuration to another folder, such as /etc/mailwarden.")


def limit_resources(memory: int, seconds: int | None = None) -> None:
    """Limit memory (bytes), processor time, open files and file sizes; the process itself cannot raise them again."""
    import resource  # noqa: PLC0415 - only Unix has it, and only the processes that enter a sandbox need it

    limits = {"AS": memory, "NOFILE": 64, "CORE": 0, "FSIZE": 0} | ({"CPU": seconds} if seconds else {})
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_sandbox(keep_open: int = 2) -> tuple[str, ...]:
    """Restrict this process for good and return the names of the active layers.

    `keep_open` is the highest file descriptor that stays open. The process must have one thread: Landlock restricts
    the calling thread alone. Code that is needed later is imported before or can still be read.
    """
    os.closerange(keep_open + 1, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    try:
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError as error:
        raise _unavailable(f"Cannot count the threads of the worker in /proc: {error.strerror}.") from None
    if threads != 1:
        raise _unavailable(f"The worker has {threads} threads before it enters the sandbox.")
    layers = [*_leave_user()]
    _drop_capabilities()
    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    try:
        layers.append(f"landlock {allow_only_reading(readable_paths())}")
    except OSError as error:
        raise _unavailable(
            f"Landlock is not available ({error.strerror}). Use Linux 5.13 or newer with `landlock` in the kernel's "
            "lsm= parameter, and permit the landlock_* system calls (systemd: SystemCallFilter=@sandbox)."
        ) from None
    _checked(_LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "set dumpable to 0")
    die_with_parent()  # a change of user has reset it
    try:
        allow_only_listed_calls()
    except OSError as error:
        raise _unavailable(
            f"The system-call filter cannot be loaded ({error.strerror}). Install libseccomp2, use a kernel with "
            "seccomp filters, and permit the seccomp system call (systemd: SystemCallFilter=@sandbox)."
        ) from None
    return (*layers, "seccomp")


def _leave_user() -> Iterator[str]:
    """Become a user without files, or enter a user namespace; yield what the kernel permitted."""
    if os.geteuid() == 0 and all(_is_readable_by_all(path) for path in code_paths()):
        isolated = _unshare(_CLONE_NEWNET | _CLONE_NEWIPC)
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except OSError:
            pass  # in a container that may not change users
        else:
            yield "own user"
            if isolated:
                yield "network namespace"
            return
    if _unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC):
        yield "user namespace"
        yield "network namespace"


def _unshare(flags: int) -> bool:
    return bool(_LIBC.unshare(ctypes.c_int(flags)) == 0)


def _is_readable_by_all(path: Path) -> bool:
    try:
        others = [place.stat().st_mode for place in (path, *path.parents)]
    except OSError:
        return False
    return bool(others[0] & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in others)


def _drop_capabilities() -> None:
    """Give up every capability, also those inside an own user namespace (capset(2))."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _checked(_LIBC.capset(header, (ctypes.c_uint32 * 6)()), "drop capabilities")


def _checked(returned: int, step: str) -> None:
    if returned != 0:
        raise _unavailable(f"The kernel refused to {step}: {os.strerror(ctypes.get_errno())}.")


def _unavailable(sentence: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"The worker sandbox cannot be set up. {sentence}")


def try_sandbox() -> str:
    """Enter the sandbox in a process of its own and return its layers; raise SandboxUnavailable if it cannot."""
    command = (sys.executable, "-P", "-m", "mailwarden.pipeline.sandbox")
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, text=True, timeout=60, check=False, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unavailable(f"The process that tries it did not finish: {error}.") from None
    if done.returncode:
        raise SandboxUnavailable(done.stderr.strip()[-1_000:] or f"The process ended with code {done.returncode}.")
    return done.stdout.strip()


def main() -> None:
    """Enter the sandbox and print its layers, or what is missing: see `try_sandbox`."""
    try:
        sys.stdout.write(", ".join(enter_sandbox()) + "\n")
    except SandboxUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
