"""The pepper keys of the configuration, and the stored secrets that depend on each of them.

Security: secrets of authenticators are decrypted and encrypted again here; none is logged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from mailwarden.crypto.keyring import ID, KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

_ASK_AGAIN = 5.0
_ADVICE = "Restore that line of apiKeyPepper from a backup and restart abby; until then these credentials are rejected."
# The proof of an API key needs its pepper key until the API key ends.
_USES = """
SELECT what, key, count(*) AS rows FROM (
    SELECT 'API keys' AS what, substring(secret FROM 1 FOR $1) AS key FROM api_keys
    WHERE revoked IS NULL AND (expires IS NULL OR expires > now())
    UNION ALL SELECT 'recovery codes', substring(digest FROM 1 FOR $1) FROM recovery_codes WHERE used IS NULL
    UNION ALL SELECT 'setup links', substring(digest FROM 1 FOR $1) FROM setup_links
    WHERE expires > now()
    UNION ALL SELECT 'authenticators', substring(totp FROM 2 FOR $1) FROM users WHERE totp IS NOT NULL
    UNION ALL SELECT 'secrets of webhooks', substring(sealed FROM 2 FOR $1)
    FROM event_receivers, unnest(ARRAY[secret, previous_secret, sealed_url]) AS sealed WHERE sealed IS NOT NULL
) AS uses GROUP BY what, key ORDER BY what
"""
_AUTHENTICATORS = "SELECT uid, totp FROM users WHERE totp IS NOT NULL AND substring(totp FROM 2 FOR $2) <> $1"
_REPLACE = "UPDATE users SET totp = $3 WHERE uid = $1 AND totp = $2 RETURNING true"
_log = get_logger("access.pepper")


class PepperStore:
    """All SQL about pepper keys; they belong to the deployment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def uses(self, scope: Scope) -> Mapping[bytes, Mapping[str, int]]:
        """Return the number of dependent rows by key id and kind."""
        _require_deployment(scope)
        found: dict[bytes, dict[str, int]] = {}
        async with self._database.connection() as connection:
            for row in await connection.fetch(_USES, ID):
                found.setdefault(cast("bytes", row["key"]), {})[str(row["what"])] = cast("int", row["rows"])
        return found

    async def authenticators(self, scope: Scope, current: bytes) -> Sequence[tuple[UUID, bytes]]:
        """Return the users whose TOTP secret is encrypted with an old key."""
        _require_deployment(scope)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_AUTHENTICATORS, current, ID)
        return [(cast("UUID", row["uid"]), cast("bytes", row["totp"])) for row in rows]

    async def replace_authenticator(self, scope: Scope, user_id: UUID, before: bytes, after: bytes) -> bool:
        """Store the secret encrypted with the current key; return False if the user has a new secret meanwhile."""
        _require_deployment(scope)
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_REPLACE, user_id, before, after))

    async def log_lost_keys(self, scope: Scope, pepper: KeyRing) -> None:
        """Log each pepper key that rows need and the file lacks; retry until the database answers.

        An API key with a lost pepper key is rejected before any query, so nothing else would report the loss.
        """
        while True:
            try:
                uses = await self.uses(scope)
            except StorageUnavailable:
                await asyncio.sleep(_ASK_AGAIN)
                continue
            for key_id in uses.keys() - {key.key_id for key in pepper.keys}:
                _log.error("pepper_key_lost", key=key_id.hex(), needed_by=uses[key_id], advice=_ADVICE)
            return


def _require_deployment(scope: Scope) -> None:
    assert scope.uids() is None, "secrets belong to the whole deployment"
