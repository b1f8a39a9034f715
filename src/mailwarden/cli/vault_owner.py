"""`mailwarden quarantine take-ownership`: makes this deployment the owner of its vault instead of another one."""

import argparse
import asyncio
import os
from pathlib import Path
from uuid import UUID

from mailwarden.cli.command import add_action, add_config_option
from mailwarden.cli.database import unreachable
from mailwarden.cli.installation import Installation, read_installation
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.quarantine.blob_store import OWNER, PARTS
from mailwarden.quarantine.ownership import foreign_text, read_deployment
from mailwarden.quarantine.vault import Vault, open_vault


def add_take_ownership(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    claim = add_action(
        actions,
        "take-ownership",
        "make this deployment the owner of its vault, so that it removes messages from it",
        "mailwarden quarantine take-ownership 2f0c4b1e-6d9b-4c55-9a8e-1f4f0c3b7d10",
    )
    claim.add_argument(
        "owner", nargs="?", type=UUID, metavar="OWNER", help="the present owner, as `mailwarden doctor` shows it"
    )
    add_config_option(claim)


def take_ownership(options: argparse.Namespace) -> int:
    installation = read_installation(options.config.resolve())
    place = installation.folders().get("vault")
    if place is not None and not place.is_dir():
        raise CommandError(f"There is no vault in {place}: guard makes and claims it at its start.")
    try:
        print(asyncio.run(_claim(installation, options.owner)))
    except StorageUnavailable as error:
        raise unreachable(error) from None
    if place is not None:
        _give_to_owner(place)
    return 0


async def _claim(installation: Installation, named: UUID | None) -> str:
    database = Database(installation.database_url, pool_size=1, pooled=True)
    try:
        async with database.connection() as connection:
            deployment = await read_deployment(connection)
    finally:
        await database.close()
    vault = _vault(installation)
    owner = await vault.owner()
    if owner == deployment.uid:
        return f"The vault {await vault.uid()} belongs to this deployment, {owner}."
    if owner != named:
        raise CommandError(await foreign_text(vault, owner, deployment))
    await vault.take_ownership(deployment.uid)
    return (
        f"The vault {await vault.uid()} belongs to this deployment now, {deployment.uid}. Messages without a row in "
        "its database are removed after 72 hours."
    )


def _vault(installation: Installation) -> Vault:
    config = installation.guard or installation.abby
    assert config is not None
    ring = read_ring(installation.folder / config.contents.key, "contents.key")
    return open_vault(installation.quarantine, installation.folder, ring)


def _give_to_owner(place: Path) -> None:
    """Give what root has written to the owner of the folder: guard reads it."""
    if os.geteuid() == 0:
        owner = place.stat()
        for path in (place / OWNER, place / PARTS):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
