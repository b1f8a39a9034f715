"""Which keys of the pepper API keys, recovery codes, setup links and authenticators need, in PostgreSQL."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from mailwarden.access.scope_value import uids_of
from mailwarden.crypto.keyring import ID, KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

_ASK_AGAIN = 5.0
_ADVICE = "Restore that line of apiKeyPepper from a backup and restart abby; until then what needs it is refused."
# The texts of API keys are MACed with the pepper as well, so a key that is valid needs its pepper to its end.
_USES = """
SELECT what, key, count(*) AS rows FROM (
    SELECT 'API keys' AS what, substring(secret FROM 1 FOR $1) AS key FROM api_keys
    WHERE revoked IS NULL AND (expires IS NULL OR expires > now())
    UNION ALL SELECT 'recovery codes', substring(digest FROM 1 FOR $1) FROM recovery_codes WHERE used IS NULL
    UNION ALL SELECT 'setup links', substring(digest FROM 1 FOR $1) FROM setup_links
    WHERE expires > now() AND length(digest) = $1 + 32
    UNION ALL SELECT 'authenticators', substring(totp FROM 2 FOR $1) FROM people WHERE totp IS NOT NULL
) AS uses GROUP BY what, key ORDER BY what
"""
_AUTHENTICATORS = "SELECT uid, totp FROM people WHERE totp IS NOT NULL AND substring(totp FROM 2 FOR $2) <> $1"
_REPLACE = "UPDATE people SET totp = $3 WHERE uid = $1 AND totp = $2 RETURNING true"

log = get_logger("access.pepper")


class PepperStore:
    """All SQL about keys of the pepper; they are the deployment's, not a tenant's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def uses(self, scope: Scope) -> Mapping[bytes, Mapping[str, int]]:
        """Return for each key id how many rows of which kind need it."""
        _require(scope)
        found: dict[bytes, dict[str, int]] = {}
        async with self._database.connection() as connection:
            for row in await connection.fetch(_USES, ID):
                found.setdefault(cast("bytes", row["key"]), {})[str(row["what"])] = cast("int", row["rows"])
        return found

    async def authenticators(self, scope: Scope, current: bytes) -> Sequence[tuple[UUID, bytes]]:
        """Return the people whose authenticator secret is sealed with another key than the current one."""
        _require(scope)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_AUTHENTICATORS, current, ID)
        return [(cast("UUID", row["uid"]), cast("bytes", row["totp"])) for row in rows]

    async def replace_authenticator(self, scope: Scope, person: UUID, before: bytes, after: bytes) -> bool:
        """Keep the same secret under another seal; False where the person has another secret by now."""
        _require(scope)
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_REPLACE, person, before, after))

    async def log_lost_keys(self, scope: Scope, pepper: KeyRing) -> None:
        """Log each key that rows need and the pepper does not hold; asked again until the database answers.

        An API key whose key is lost is refused before any query, so that nothing else names the lost key.
        """
        while True:
            try:
                uses = await self.uses(scope)
            except StorageUnavailable:
                await asyncio.sleep(_ASK_AGAIN)
                continue
            for key_id in uses.keys() - {key.key_id for key in pepper.keys}:
                log.error("pepper_key_lost", key=key_id.hex(), needed_by=uses[key_id], advice=_ADVICE)
            return


def _require(scope: Scope) -> None:
    assert uids_of(scope) is None, "secrets belong to the whole deployment"
