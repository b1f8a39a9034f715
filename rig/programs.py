"""Finds the servers' programs on this machine."""

import shutil
from pathlib import Path

from rig.process import RigError

# An ordinary user's PATH often lacks the folders of the servers.
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")


def find_program(name: str) -> str:
    found = shutil.which(name) or next((path for folder in FOLDERS if (path := shutil.which(name, path=folder))), None)
    if found is None:
        raise RigError(f"{name} is not installed: `make setup` installs it")
    return found


def find_postgresql() -> Path:
    """Find the folder with the programs of the newest PostgreSQL from 15 on; Debian keeps them out of PATH."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    usable = [path for path in versions if int(path.parent.name) >= 15 and (path / "initdb").exists()]
    if not usable:
        raise RigError("PostgreSQL 15 or newer is not installed: `make setup` installs it")
    return max(usable, key=lambda path: int(path.parent.name))
