"""The owner of a vault: the only deployment that removes messages from it, or encrypts them with another key.

Two deployments with one vault would take each other's messages for orphans. The vault therefore names its owner, and
another deployment removes nothing. It may still hold messages there: a lost message is worse than a foreign one.

A store that ignores create-only writes may keep the later of two claims. Each sweep therefore reads the owner again,
and the first search for orphans is an hour after the start.
"""

from uuid import UUID

from msgspec import Struct

from mailwarden.database.pool import Connection
from mailwarden.database.rows import read
from mailwarden.errors import CommandError
from mailwarden.quarantine.vault import Vault

_READ = "SELECT uid, claims FROM deployment"
_DRAW = "INSERT INTO deployment (claims) VALUES (false) ON CONFLICT DO NOTHING"
_RENEW = """
INSERT INTO deployment (claims) VALUES (false)
ON CONFLICT (single) DO UPDATE SET uid = gen_random_uuid(), claims = false
"""


class Deployment(Struct, frozen=True):
    """This deployment; `claims` is false if its database was restored: a vault without an owner may be another's."""

    uid: UUID
    claims: bool


async def read_deployment(connection: Connection) -> Deployment:
    """Return the deployment of the database; one that was restored from a backup draws a new id."""
    row = await connection.fetchrow(_READ)
    if row is None:
        await connection.execute(_DRAW)
        row = await connection.fetchrow(_READ)
        assert row is not None
    return Deployment(read(row, "uid", UUID), read(row, "claims", bool))


async def renew_deployment(connection: Connection) -> Deployment:
    """Draw a new id for a database that was restored."""
    await connection.execute(_RENEW)
    return await read_deployment(connection)


async def claim(vault: Vault, deployment: Deployment) -> None:
    """Make the deployment the owner of a vault without one, if it may; raise CommandError if it is not the owner."""
    owner = await vault.owner()
    if owner is None and await _may_claim(vault, deployment):
        await vault.claim(deployment.uid)
        owner = await vault.owner()
    if owner != deployment.uid:
        raise CommandError(await foreign_text(vault, owner, deployment))


async def check_owner(vault: Vault, deployment: Deployment) -> None:
    """Raise CommandError if another deployment owns the vault, or guard will not claim it; nothing is written."""
    owner = await vault.owner()
    if owner == deployment.uid or (owner is None and await _may_claim(vault, deployment)):
        return
    raise CommandError(await foreign_text(vault, owner, deployment))


async def _may_claim(vault: Vault, deployment: Deployment) -> bool:
    """Return whether the deployment may claim this vault, which has no owner."""
    return deployment.claims or await vault.is_empty()


async def foreign_text(vault: Vault, owner: UUID | None, deployment: Deployment) -> str:
    """Return why nothing in the vault is removed or changed, and the remedy."""
    if owner is None:
        state, command = (
            "has messages and no owner, and this database was restored",
            "mailwarden quarantine take-ownership",
        )
    else:
        state, command = f"belongs to the deployment {owner}", f"mailwarden quarantine take-ownership {owner}"
    return (
        f"The vault {await vault.uid()} {state}; this deployment is {deployment.uid}. Messages in the vault are not "
        "removed and not encrypted again. Give this deployment a vault of its own (quarantine.store), or, if no other "
        f"deployment uses this vault, run: {command}"
    )
