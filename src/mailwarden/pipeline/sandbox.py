"""The sandbox of processes that read hostile bytes: once entered, it holds until the process ends.

Required layers: no new privileges; Landlock (read code and libraries, nothing else); a system-call filter (no socket,
no program, no other process, no writing). If the kernel permits it, the process also gets a user of its own or a user
namespace, and a network namespace. Decision 32 gives the reasons; `docs/install.md` is for operators.

Security: fails closed. A process that cannot enter the sandbox reads no message.
"""

import ctypes
import errno
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

import mailwarden
from mailwarden.errors import ConfigurationError

# The three calls have the same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# Rights on files that each ABI version knows: 13 at first, then REFER, TRUNCATE and IOCTL_DEV.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11  # bind and connect, from ABI 4
_SCOPES = 0b11  # abstract unix sockets and signals of processes outside, from ABI 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi_version() -> int:
    """Return the kernel's Landlock ABI version, 0 if there is no Landlock."""
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def allow_only_reading(paths: Iterable[Path]) -> int:
    """Deny this thread every file but those at and below `paths`, to read; return the ABI version.

    The caller must have set PR_SET_NO_NEW_PRIVS. Raise OSError if the kernel refuses.
    """
    version = abi_version()
    if version < 1:
        raise OSError(errno.EOPNOTSUPP, "the kernel has no Landlock")
    handled = _Ruleset(
        files=(1 << _FILE_RIGHTS[min(version, 5)]) - 1,
        network=_TCP if version >= 4 else 0,
        scoped=_SCOPES if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in paths:
            _allow_reading(ruleset, path)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return version


def _allow_reading(ruleset: int, path: Path) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = _PathBeneath(_READ_FILE | _READ_DIR if path.is_dir() else _READ_FILE, parent)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(parent)


def _call(number: int, *arguments: object) -> int:
    returned = int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))
    if returned < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return returned


_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_BAD_ARCHITECTURE, _SYNCHRONISE_THREADS = 2, 4  # SCMP_FLTATR_ACT_BADARCH, SCMP_FLTATR_CTL_TSYNC
_EQUAL, _MASKED_EQUAL = 4, 7  # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ

# Calls without a condition: memory, time, and reading and writing what is open already.
_FREE = (
    "read readv pread64 preadv lseek close fstat fstat64 stat lstat newfstatat statx access faccessat faccessat2 "
    "readlink readlinkat getdents64 getcwd dup dup2 dup3 write writev sendto sendmsg recvfrom recvmsg shutdown "
    "poll ppoll select pselect6 "
    "mmap munmap mremap mprotect madvise brk msync membarrier "
    "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall setitimer "
    "futex set_robust_list get_robust_list set_tid_address rseq exit exit_group sched_yield sched_getaffinity getcpu "
    "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage getrlimit "
    "getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups "
    "getrandom uname sysinfo "
)
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_PR_SET_NAME = 15
_OPEN_FOR_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
# F_SETOWN and FIOASYNC are left out: by them the kernel sends signals to any process of the same user.
_FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_IOCTL = (termios.TCGETS, termios.FIOCLEX, termios.FIONCLEX)


class _Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`: one condition on one argument."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _Rule(Struct, frozen=True):
    """One system call, and what its arguments must be for it to be allowed."""

    call: str
    conditions: tuple[_Comparison, ...] = ()


def _equal(argument: int, value: int) -> _Comparison:
    return _Comparison(argument, _EQUAL, value, 0)


def _masked(argument: int, mask: int, value: int) -> _Comparison:
    return _Comparison(argument, _MASKED_EQUAL, mask, value)


def _rules() -> list[_Rule]:
    return [
        *(_Rule(call) for call in _FREE.split()),
        _Rule("open", (_masked(1, _OPEN_FOR_WRITING, os.O_RDONLY),)),
        _Rule("openat", (_masked(2, _OPEN_FOR_WRITING, os.O_RDONLY),)),
        _Rule("clone", (_masked(0, _CLONE_THREAD | _CLONE_NAMESPACES, _CLONE_THREAD),)),  # threads, no processes
        _Rule("tgkill", (_equal(0, os.getpid()),)),  # abort() signals its own process
        _Rule("prlimit64", (_equal(0, 0), _equal(2, 0))),  # ask for an own limit, never set one
        _Rule("prctl", (_equal(0, _PR_SET_NAME),)),
        *(_Rule("fcntl", (_equal(1, command),)) for command in _FCNTL),
        *(_Rule("ioctl", (_equal(1, request),)) for request in _IOCTL),
    ]


def allow_only_listed_calls() -> None:
    """Filter the system calls of every thread from now on; raise OSError if that is impossible."""
    library = _library()
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | errno.EPERM)))
    if not context:
        raise OSError(errno.ENOMEM, "libseccomp made no filter")
    try:
        for attribute, value in ((_BAD_ARCHITECTURE, _KILL_PROCESS), (_SYNCHRONISE_THREADS, 1)):
            _check_filter(library.seccomp_attr_set(context, ctypes.c_int(attribute), ctypes.c_uint32(value)))
        for rule in _rules():
            _add(library, context, _ALLOW, rule)
        # glibc then makes its threads by clone(2), whose flags a filter can see.
        _add(library, context, _ERRNO | errno.ENOSYS, _Rule("clone3"))
        _check_filter(library.seccomp_load(context))
    finally:
        library.seccomp_release(context)


def _add(library: ctypes.CDLL, context: ctypes.c_void_p, action: int, rule: _Rule) -> None:
    number = library.seccomp_syscall_resolve_name(rule.call.encode("ascii"))
    if number < 0:
        return  # a call that this architecture, or this version of libseccomp, does not have
    conditions = (_Comparison * len(rule.conditions))(*rule.conditions)
    count = ctypes.c_uint(len(rule.conditions))
    _check_filter(library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, count, conditions))


def _check_filter(returned: int) -> None:
    if returned < 0:
        raise OSError(-returned, os.strerror(-returned))


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise OSError(errno.ENOENT, "libseccomp.so.2 is missing: install the package libseccomp2") from None
    library.seccomp_init.restype = ctypes.c_void_p
    return library


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
