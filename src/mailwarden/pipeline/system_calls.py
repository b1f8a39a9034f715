"""The system calls that a sandboxed process may make, as a filter of libseccomp."""

import ctypes
import errno
import os
import termios

from msgspec import Struct

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
