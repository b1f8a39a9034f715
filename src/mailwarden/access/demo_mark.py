"""The mark of a demo in its database, and the check of it when a process starts.

Security: abby's login without a password depends on it. Three things must agree: `demo` in abby.yml, which requires a
listener on loopback; the mark, which is only set in an empty database; and the client's address at each login.
"""

from contextlib import suppress

from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.model.scope import Scope

_READ = "SELECT EXISTS (SELECT FROM demo_mark)"
_MARK = """
INSERT INTO demo_mark SELECT true
WHERE NOT EXISTS (SELECT FROM users) AND NOT EXISTS (SELECT FROM history) AND NOT EXISTS (SELECT FROM quarantine)
  AND NOT EXISTS (SELECT FROM api_keys) AND NOT EXISTS (SELECT FROM audit) AND NOT EXISTS (SELECT FROM tenant_domains)
  AND NOT EXISTS (SELECT FROM setup_links)
RETURNING true
"""


class DemoMark:
    """Reads and sets the mark of the whole deployment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, scope: Scope) -> bool:
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_READ))

    async def is_set(self) -> bool:
        """Return whether the database is a demo's; False while it cannot be read."""
        with suppress(StorageUnavailable):
            return await self.read(Scope.deployment())
        return False

    async def set(self, scope: Scope) -> None:
        """Mark an empty database; raise CommandError if anything is in it."""
        async with self._database.connection() as connection:
            if not await connection.fetchval(_MARK):
                raise CommandError("The database is not empty: only an empty one can become the database of a demo.")

    async def require(self, *, demo: bool) -> None:
        """Raise CommandError if abby's configuration and the database do not agree whether this is a demo.

        Without the database a demo does not start. Another abby does: it shows no mail then, either.
        """
        try:
            marked = await self.read(Scope.deployment())
        except StorageUnavailable as error:
            if demo:
                raise CommandError(f"abby does not start as a demo: {error.message}") from None
            return
        if demo and not marked:
            raise CommandError(
                "abby does not start: abby.yml says `demo: true`, but the database is not that of a demo. Its login "
                "needs no password. Remove `demo` from abby.yml; for a demo run `mailwarden demo`."
            )
        if marked and not demo:
            raise CommandError(
                "abby does not start: the database is that of a demo, and all mail in it is made up. Name another "
                "database in abby.yml; `mailwarden demo` starts the demo."
            )
