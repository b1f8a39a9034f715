"""The previous version of the product, which is upgraded."""

import os
from pathlib import Path

from workshop.rig import versions

ROOT = versions.ROOT
# The schema, how its checksum is made, and what abby sends to guard. Nothing upgrades what earlier commits had.
_FORMATS = (
    "src/mailwarden/database/migrations/0001_baseline",
    "src/mailwarden/database/migrations.py",
    "src/mailwarden/hop/scan_body.py",
)


def find_commit() -> str:
    """Return the previous version: MAILWARDEN_PREVIOUS, or the last commit that changed one of these.

    It is empty without one: a source archive has no commits.
    """
    return os.environ.get("MAILWARDEN_PREVIOUS") or versions.last_change_of(*_FORMATS)


def install(folder: Path, *, own_packages: bool) -> str:
    """Install the previous version and return its interpreter; an installation of the same commit is used again."""
    tree = versions.tree_of(find_commit())
    return versions.install_version(tree, folder / tree[:12], own_packages=own_packages)
