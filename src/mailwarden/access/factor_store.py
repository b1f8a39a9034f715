"""Second factors in PostgreSQL: TOTP secrets, passkeys and recovery codes, each of one person."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.access.audit import record_deed
from mailwarden.access.people import User
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import NameTaken
from mailwarden.model.actor import Actor

MAX_PASSKEYS = 20

_PASSKEYS = "SELECT passkey_id, credential, person, name, public_key, sign_count, created, last_used FROM passkeys"
_INSERT = "INSERT INTO passkeys (credential, person, name, public_key, sign_count) VALUES ($1, $2, $3, $4, $5)"


class Passkey(Struct, frozen=True):
    """One passkey of a person."""

    passkey_id: UUID
    credential: bytes
    person: UUID
    name: str
    public_key: bytes
    sign_count: int
    created: datetime
    last_used: datetime | None


class NewPasskey(Struct, frozen=True):
    """A passkey that was just made, in a browser of its person."""

    credential: bytes
    public_key: bytes
    sign_count: int
    name: str


class FactorStore:
    """All SQL about second factors; a row belongs to one person, who was found in a scope before."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totp(self, person: UUID) -> bytes | None:
        """Return the sealed secret of a person."""
        async with self._database.connection() as connection:
            return cast("bytes | None", await connection.fetchval("SELECT totp FROM people WHERE uid = $1", person))

    async def spend_step(self, person: UUID, step: int) -> bool:
        """Accept a step of TOTP, if none so late was accepted before; of two at once one is accepted."""
        async with self._database.connection() as connection:
            query = "UPDATE people SET totp_step = $2 WHERE uid = $1 AND totp_step < $2 RETURNING true"
            return bool(await connection.fetchval(query, person, step))

    async def set_totp(self, user: User, sealed: bytes | None, step: int, actor: Actor) -> None:
        """Keep another secret, of which the step has been used, or none."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(
                "UPDATE people SET totp = $2, totp_step = $3 WHERE uid = $1", user.uid, sealed, step
            )
            details = {"before": {"totp": user.has_totp}, "after": {"totp": sealed is not None}}
            await _record(connection, actor, "people.totp", user, details)

    async def passkeys(self, person: UUID) -> Sequence[Passkey]:
        """Return the passkeys of a person, oldest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(f"{_PASSKEYS} WHERE person = $1 ORDER BY created", person)
        return [_passkey(row) for row in rows]

    async def find_passkey(self, credential: bytes) -> Passkey | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(f"{_PASSKEYS} WHERE credential = $1", credential)
        return None if row is None else _passkey(row)

    async def add_passkey(self, user: User, made: NewPasskey, actor: Actor) -> None:
        async with self._database.connection() as connection, connection.transaction():
            await insert_passkey(connection, user, made, actor)

    async def use_passkey(self, passkey: Passkey, sign_count: int) -> bool:
        """Note the use; tell whether the counter had not moved beyond it already, as a copy's would."""
        query = """
        UPDATE passkeys SET sign_count = $2, last_used = now()
        WHERE credential = $1 AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0)) RETURNING true
        """
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(query, passkey.credential, sign_count))

    async def remove_passkey(self, user: User, passkey_id: UUID, actor: Actor) -> bool:
        """Remove one passkey of a person; tell whether there was one."""
        async with self._database.connection() as connection, connection.transaction():
            query = "DELETE FROM passkeys WHERE person = $1 AND passkey_id = $2 RETURNING name"
            name = await connection.fetchval(query, user.uid, passkey_id)
            if name is None:
                return False
            details = {"before": {"passkey": str(name)}, "after": {"passkey": None}}
            await _record(connection, actor, "people.passkey-remove", user, details)
        return True

    async def set_recovery_codes(self, user: User, digests: Sequence[bytes], actor: Actor) -> None:
        """Keep these codes, and none of those before."""
        async with self._database.connection() as connection, connection.transaction():
            await insert_recovery_codes(connection, user.uid, digests)
            await _record(connection, actor, "people.recovery-codes", user, {"after": {"codes": len(digests)}})

    async def spend_recovery_code(self, person: UUID, candidates: Sequence[bytes]) -> bool:
        """Use a code up, whichever key its digest was made with; tell whether it was good."""
        query = """
        UPDATE recovery_codes SET used = now()
        WHERE person = $1 AND digest = ANY ($2::bytea[]) AND used IS NULL RETURNING true
        """
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(query, person, list(candidates)))

    async def recovery_codes_left(self, person: UUID) -> int:
        async with self._database.connection() as connection:
            query = "SELECT count(*) FROM recovery_codes WHERE person = $1 AND used IS NULL"
            return cast("int", await connection.fetchval(query, person))


async def insert_passkey(connection: Connection, user: User, made: NewPasskey, actor: Actor) -> None:
    """Add a passkey inside the transaction of the caller."""
    try:
        await connection.execute(_INSERT, made.credential, user.uid, made.name, made.public_key, made.sign_count)
    except asyncpg.UniqueViolationError:
        raise NameTaken("This passkey is already in use.") from None
    details = {"before": {"passkey": None}, "after": {"passkey": made.name}}
    await _record(connection, actor, "people.passkey-add", user, details)


async def insert_recovery_codes(connection: Connection, person: UUID, digests: Sequence[bytes]) -> None:
    """Replace the recovery codes inside the transaction of the caller."""
    await connection.execute("DELETE FROM recovery_codes WHERE person = $1", person)
    query = "INSERT INTO recovery_codes (person, digest) SELECT $1, unnest($2::bytea[])"
    await connection.execute(query, person, list(digests))


async def _record(connection: Connection, actor: Actor, action: str, user: User, details: Mapping[str, object]) -> None:
    tenant = next(iter(user.tenants)) if len(user.tenants) == 1 else None
    await record_deed(connection, actor, action, f"user:{user.name}", details, tenant=tenant)


def _passkey(row: Row) -> Passkey:
    return Passkey(
        passkey_id=cast("UUID", row["passkey_id"]),
        credential=cast("bytes", row["credential"]),
        person=cast("UUID", row["person"]),
        name=str(row["name"]),
        public_key=cast("bytes", row["public_key"]),
        sign_count=cast("int", row["sign_count"]),
        created=cast("datetime", row["created"]),
        last_used=cast("datetime | None", row["last_used"]),
    )
