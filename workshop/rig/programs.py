"""Finds the servers' programs on this machine."""

import shutil
from pathlib import Path

from workshop.rig.process import RigError

# An ordinary user's PATH often lacks the folders of the servers.
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")
REMEDY = "Run: make setup (for tests: make setup-develop; for `make check-long`: make setup-long)"


def find_program(*names: str) -> str:
    """Find the first of these programs that is installed: a successor may have another name."""
    places = [None, *FOLDERS]
    found = next((path for name in names for place in places if (path := shutil.which(name, path=place))), None)
    if found is None:
        raise RigError(f"{' or '.join(names)} is not installed. {REMEDY}")
    return found


def find_postgresql() -> Path:
    """Find the folder with the programs of the newest PostgreSQL from 15 on; Debian keeps them out of PATH."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    usable = [path for path in versions if int(path.parent.name) >= 15 and (path / "initdb").exists()]
    if not usable:
        raise RigError(f"PostgreSQL 15 or newer is not installed. {REMEDY}")
    return max(usable, key=lambda path: int(path.parent.name))
