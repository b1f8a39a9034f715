"""Folders that servers can use, under any user."""

import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from workshop.rig.process import RigError, tell_watcher
from workshop.rig.programs import REMEDY

MAX_SOCKET_PATH = 107


def user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def service_user(name: str) -> str | None:
    """Return the user that a server runs as: root switches to it, any other user stays the same."""
    if os.geteuid() != 0:
        return None
    if not user_exists(name):
        raise RigError(f"There is no user {name}: its package is not installed. {REMEDY}")
    return name


def make_folder(path: Path, owner: str | None = None, mode: int = 0o755) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if owner is not None:
        shutil.chown(path, owner, owner)
    return path


def service_users_can_enter(path: Path) -> bool:
    """Return whether the users that root runs servers as can access this path; paths below /root, for example, fail."""
    ways = (each for each in path.absolute().parents if each.exists())
    return os.geteuid() != 0 or all(each.stat().st_mode & stat.S_IXOTH for each in ways)


def empty_folder(path: Path) -> Path:
    if path.exists():
        shutil.rmtree(path)
    return make_folder(path.absolute())


def temporary_folder() -> Path:
    """Make a folder; `remove_folder` removes it, or the watcher if the rig dies."""
    path = Path(tempfile.mkdtemp(prefix="mailwarden-rig-"))
    path.chmod(0o755)
    tell_watcher(f"remove {path}")
    return path


def remove_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    tell_watcher(f"keep {path}")


def socket_path(path: Path) -> Path:
    """Check that a unix socket fits at this path, and remove one that a killed server left."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise RigError(f"{path} is too long for a unix socket: use a folder with a shorter path")
    path.unlink(missing_ok=True)
    return path
