"""Saved searches of users: a name and the query of a page's URL, with an audit event for every change."""

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.access.users import User
from mailwarden.database.pool import Connection, Database
from mailwarden.errors import NotFound, SchemaViolation
from mailwarden.model.scope import Actor

MAX_SAVED = 50  # of one user
MAX_NAME = 60
MAX_QUERY = 4_000

_LIST = "SELECT uid, name, query FROM saved_searches WHERE user_id = $1 ORDER BY lower(name), uid LIMIT $2"
# The lock serialises the changes of one user, so that the maximum holds.
_LOCK = "SELECT FROM users WHERE uid = $1 FOR UPDATE"
_COUNT_OTHERS = "SELECT count(*) FROM saved_searches WHERE user_id = $1 AND name <> $2"
_SAVE = """
INSERT INTO saved_searches (user_id, name, query) VALUES ($1, $2, $3)
ON CONFLICT (user_id, name) DO UPDATE SET query = EXCLUDED.query
"""
_DELETE = "DELETE FROM saved_searches WHERE user_id = $1 AND uid = $2 RETURNING name"


class SavedSearch(Struct, frozen=True):
    """A search that a user has saved; `query` is the query of its URL."""

    uid: UUID
    name: str
    query: str


class SavedSearches:
    """The saved searches of each user; no user sees those of another."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, user: User) -> Sequence[SavedSearch]:
        """Return the searches of the user by name."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LIST, user.uid, MAX_SAVED)
        return [SavedSearch(cast("UUID", row["uid"]), str(row["name"]), str(row["query"])) for row in rows]

    async def save(self, user: User, name: str, query: str, actor: Actor) -> None:
        """Save a search; a search of the same name is replaced."""
        name = checked_name(name)
        if len(query) > MAX_QUERY:
            raise SchemaViolation(f"A saved search has at most {MAX_QUERY:,} characters.")
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, user.uid)
            if cast("int", await connection.fetchval(_COUNT_OTHERS, user.uid, name)) >= MAX_SAVED:
                raise SchemaViolation(f"You have {MAX_SAVED} saved searches. Delete one first.")
            await connection.execute(_SAVE, user.uid, name, query)
            await _record(connection, actor, "searches.save", user, {"name": name, "query": query})

    async def delete(self, user: User, uid: UUID, actor: Actor) -> None:
        """Delete a search of the user, or raise NotFound."""
        async with self._database.connection() as connection, connection.transaction():
            name = await connection.fetchval(_DELETE, user.uid, uid)
            if name is None:
                raise NotFound("There is no such saved search.")
            await _record(connection, actor, "searches.delete", user, {"name": str(name)})


def checked_name(text: str) -> str:
    """Return the name of a search without outer spaces, or raise SchemaViolation."""
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise SchemaViolation(f"The name of a search has 1 to {MAX_NAME} printable characters.")
    return name


async def _record(connection: Connection, actor: Actor, action: str, user: User, details: Mapping[str, str]) -> None:
    tenant = next(iter(user.tenants)) if len(user.tenants) == 1 else None
    await record_event(connection, actor, action, f"user:{user.name}", details, tenant=tenant)
