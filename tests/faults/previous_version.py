"""The previous version of the product, which is upgraded."""

import os
from pathlib import Path

from workshop.rig import versions

ROOT = versions.ROOT
# The first file of the schema. Earlier commits have another schema, which nothing upgrades.
_BASELINE = "src/mailwarden/database/migrations/0001_baseline/order.txt"


def find_commit() -> str:
    """Return the previous version: MAILWARDEN_PREVIOUS, or the first commit that has the schema.

    It is empty without one: a source archive has no commits.
    """
    return os.environ.get("MAILWARDEN_PREVIOUS") or versions.first_commit_with(_BASELINE)


def install(folder: Path, *, own_packages: bool) -> str:
    """Install the previous version and return its interpreter; an installation of the same commit is used again."""
    tree = versions.tree_of(find_commit())
    return versions.install_version(tree, folder / tree[:12], own_packages=own_packages)
