"""Keys and users of several tenants, when a second tenant follows into a cell that has them already.

The stricter of both cells applies: a key that one cell has revoked stays revoked, and a disabled user disabled. Where
no value is the stricter one, such as two passwords, the move is refused.
"""

from collections.abc import Sequence
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.errors import CommandError

_KEYS = "SELECT key_id, name, secret, networks FROM api_keys WHERE $1 = ANY (tenants)"
_SAME_KEYS = "SELECT key_id, secret, networks, tenants FROM api_keys WHERE key_id = ANY ($1::text[])"
_COMMON = """
SELECT EXISTS (SELECT FROM unnest($1::cidr[]) AS one, unnest($2::cidr[]) AS other WHERE one && other)
"""
_PASSKEYS = "ARRAY(SELECT credential FROM passkeys WHERE person = people.uid ORDER BY credential) AS passkeys"
_USER = f"uid, name, role, password, totp, issuer, subject, {_PASSKEYS}"
_USERS = f"SELECT {_USER} FROM people WHERE $1 = ANY (tenants)"  # noqa: S608 -- constants of this file
_SAME_USERS = f"SELECT {_USER}, tenants FROM people WHERE uid = ANY ($1::uuid[])"  # noqa: S608
_PROOFS = ("name", "role", "password", "totp", "issuer", "subject", "passkeys")
_SHARED_USERS = "SELECT uid FROM people WHERE $1 = ANY (tenants) AND cardinality(tenants) > 1"
_CODES = "SELECT digest FROM recovery_codes WHERE person = $1 AND used IS NULL"
_DROP_CODES = "DELETE FROM recovery_codes WHERE person = $1 AND used IS NULL AND digest <> ALL ($2::bytea[])"


async def check_shared(a: asyncpg.Connection, b: asyncpg.Connection, tenant: UUID, target: str) -> None:
    """Raise if the other cell has a key or user of this tenant with other credentials, and neither is stricter."""
    keys = {str(row["key_id"]): row for row in await a.fetch(_KEYS, tenant)}
    for there in await b.fetch(_SAME_KEYS, list(keys)):
        if _is_only(there, tenant):
            continue  # of an attempt before: it is removed
        here = keys[str(there["key_id"])]
        if here["secret"] != there["secret"]:
            raise CommandError(f"The cell `{target}` has another API key with the id `{here['key_id']}`. Rotate one.")
        given = here["networks"], there["networks"]
        if all(given) and not await b.fetchval(_COMMON, *given):
            raise CommandError(
                f"The API key `{here['name']}` ({here['key_id']}) allows other networks in the cell `{target}`, and no "
                "address is allowed in both. Revoke it in one cell and give its tenants a key each."
            )
    users = {cast("UUID", row["uid"]): row for row in await a.fetch(_USERS, tenant)}
    for there in await b.fetch(_SAME_USERS, list(users)):
        if _is_only(there, tenant):
            continue
        here = users[there["uid"]]
        different = [proof for proof in _PROOFS if here[proof] != there[proof]]
        if not there["tenants"]:
            different.append("tenants")  # a user of the whole deployment there
        if different:
            raise CommandError(
                f"The user `{here['name']}` exists in the cell `{target}` with another {' and '.join(different)}. "
                "Remove the tenant from the user in this cell, or the user in one of the cells, and run the move again."
            )


def _is_only(row: asyncpg.Record, tenant: UUID) -> bool:
    return list(cast("Sequence[UUID]", row["tenants"])) == [tenant]


async def keep_common_codes(a: asyncpg.Connection, b: asyncpg.Connection, tenant: UUID) -> None:
    """Remove recovery codes of shared users that the old cell does not accept (any more)."""
    for row in await b.fetch(_SHARED_USERS, tenant):
        codes = [code["digest"] for code in await a.fetch(_CODES, row["uid"])]
        await b.execute(_DROP_CODES, row["uid"], codes)
