"""The previous version of the product, which is upgraded."""

import os
from pathlib import Path

from workshop.rig import versions

ROOT = versions.ROOT
# The schema, and how its checksum is made. Earlier commits have another one, which nothing upgrades.
_SCHEMA = ("src/mailwarden/database/migrations/0001_baseline", "src/mailwarden/database/migrations.py")


def find_commit() -> str:
    """Return the previous version: MAILWARDEN_PREVIOUS, or the first commit with this schema.

    It is empty without one: a source archive has no commits.
    """
    return os.environ.get("MAILWARDEN_PREVIOUS") or versions.last_change_of(*_SCHEMA)


def install(folder: Path, *, own_packages: bool) -> str:
    """Install the previous version and return its interpreter; an installation of the same commit is used again."""
    tree = versions.tree_of(find_commit())
    return versions.install_version(tree, folder / tree[:12], own_packages=own_packages)
