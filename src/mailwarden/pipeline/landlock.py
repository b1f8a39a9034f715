"""Landlock: the kernel denies this thread every file but the listed ones."""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

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
