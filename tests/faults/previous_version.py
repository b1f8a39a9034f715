"""The previous version of the product, which is upgraded."""

import os
from pathlib import Path

from rig import versions

ROOT = versions.ROOT
# The last commit before the first packages; any other commit with the same setup commands works too.
COMMIT = os.environ.get("MAILWARDEN_PREVIOUS") or "cba1d8e"


def is_known() -> bool:
    return versions.is_known(COMMIT)


def install(folder: Path, *, own_packages: bool) -> str:
    """Install the previous version and return its interpreter; an installation of the same commit is used again."""
    return versions.install_version(versions.tree_of(COMMIT), folder / COMMIT, own_packages=own_packages)
