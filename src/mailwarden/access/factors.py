"""The factors of a login: passwords (argon2id), TOTP codes (RFC 6238), recovery codes and passkeys (WebAuthn).

Security: secrets pass through here, and none is logged. A password hash takes 64 MiB, so the number of concurrent and
waiting hashes is limited; unknown names cost the same work as known ones. A TOTP step is accepted once; the store keeps
the last one. The challenge, site, user presence, user verification, signature and counter of a passkey answer are all
checked.
"""

import asyncio
import json
import secrets
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar, cast
from uuid import UUID

import asyncpg
import pyotp
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from msgspec import Struct
from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import parse_authentication_credential_json
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from mailwarden.access.audit import record_event
from mailwarden.access.sessions import ClientOrigin
from mailwarden.access.users import User
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac, equal
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.errors import LoginFailed, NameTaken, Overloaded, SchemaViolation, UnsuitablePassword
from mailwarden.model.scope import Actor

T = TypeVar("T")

MIN_LENGTH = 12
MAX_LENGTH = 256
THREADS = 2
MAX_WAITING = 32

# Common passwords. The attempt limit and the second factor protect all others.
_OBVIOUS = (
    "password", "passwort", "qwerty", "qwertz", "azerty", "asdfgh", "letmein", "welcome", "administrator", "admin",
    "mailwarden", "changeme", "iloveyou", "secret", "abcdefghijklmnopqrstuvwxyz", "01234567890123456789",
)  # fmt: skip
ISSUER = "Mailwarden"
STEP_SECONDS = 30
RECOVERY_CODES = 10
_CODE_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # without letters that look alike
_CODE_LENGTH = 16  # 80 bits
_RECOVERY = b"mailwarden recovery codes 1"

MAX_PASSKEYS = 20

_PASSKEYS = "SELECT passkey_id, credential, user_id, name, public_key, sign_count, created, last_used FROM passkeys"
_INSERT_PASSKEY = "INSERT INTO passkeys (credential, user_id, name, public_key, sign_count) VALUES ($1, $2, $3, $4, $5)"

PASSKEY_TIMEOUT_MS = 120_000
MAX_PASSKEY_ANSWER = 16_384
MAX_PASSKEY_NAME = 60


def check_password(password: str, name: str = "") -> str:
    """Return the normalised password, or raise UnsuitablePassword with the reason."""
    normal = unicodedata.normalize("NFKC", password)
    if not MIN_LENGTH <= len(normal) <= MAX_LENGTH or len(password) > MAX_LENGTH:
        raise UnsuitablePassword(f"A password has {MIN_LENGTH} to {MAX_LENGTH} characters.")
    rest = normal.lower()
    for word in (*_OBVIOUS, name.lower()):
        rest = rest.replace(word, "") if word else rest
    # `Password1234!` is rejected: without common words, digits and punctuation too little is left.
    if len(set(normal)) < 5 or len([letter for letter in rest if letter.isalpha()]) < 3:
        raise UnsuitablePassword("This password is too common. Use a few unrelated words.")
    return normal


class Passwords:
    """Creates and checks hashes; `rounds` and `memory` are argon2's time cost and KiB."""

    def __init__(self, *, rounds: int = 3, memory: int = 65_536) -> None:
        self._hasher = PasswordHasher(time_cost=rounds, memory_cost=memory, parallelism=1)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="password")
        self._waiting = 0
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(unicodedata.normalize("NFKC", password)))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Return whether the password matches; without a hash the same work is done."""
        if self._dummy is None:
            self._dummy = await self.hash("a password of no user")
        dummy = self._dummy
        if len(password) > MAX_LENGTH:
            password = ""

        def verify() -> bool:
            try:
                matched = self._hasher.verify(stored or dummy, unicodedata.normalize("NFKC", password))
            except (VerificationError, InvalidHashError):
                return False
            return matched and stored is not None

        return await self._run(verify)

    def is_outdated(self, stored: str) -> bool:
        """Return whether the hash has outdated parameters."""
        return self._hasher.check_needs_rehash(stored)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Overloaded("Too many users log in just now; try again.", retry_after=2)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def new_totp_secret() -> str:
    """Return a secret of 160 bits in base32."""
    return pyotp.random_base32(32)


def totp_uri(secret: str, name: str) -> str:
    """Return the otpauth URI for the QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=name, issuer_name=ISSUER)


def totp_context(user: UUID) -> bytes:
    """Return the text that binds a sealed TOTP secret to its user: no other user's row can hold it."""
    return b"totp:" + user.bytes


def totp_step(secret: str, code: str, now: float) -> int | None:
    """Return the step of a code, at most one step off; None for a wrong code."""
    digits = "".join(code.split())
    if len(digits) != 6 or not digits.isascii() or not digits.isdigit():
        return None
    current = int(now) // STEP_SECONDS
    totp = pyotp.TOTP(secret)
    found = None
    for step in (current - 1, current, current + 1):
        if equal(totp.at(step * STEP_SECONDS).encode(), digits.encode()):
            found = step
    return found


def new_recovery_codes() -> list[str]:
    """Return ten single-use codes in groups of four."""
    codes = ["".join(secrets.choice(_CODE_DIGITS) for _ in range(_CODE_LENGTH)) for _ in range(RECOVERY_CODES)]
    return ["-".join(code[start : start + 4] for start in range(0, _CODE_LENGTH, 4)) for code in codes]


def looks_like_recovery(code: str) -> bool:
    return len(_plain(code)) == _CODE_LENGTH


def recovery_digest(code: str, pepper: KeyRing) -> bytes:
    """Return the digest to store of a recovery code."""
    return Mac(pepper, _RECOVERY).sign(_plain(code).encode())


def recovery_candidates(code: str, pepper: KeyRing) -> list[bytes]:
    """Return the possible digests of a recovery code, one per pepper key."""
    return Mac(pepper, _RECOVERY).candidates(_plain(code).encode())


def _plain(code: str) -> str:
    return "".join(code.lower().split()).replace("-", "")[:64]


class Passkey(Struct, frozen=True):
    """One passkey of a user."""

    passkey_id: UUID
    credential: bytes
    user_id: UUID
    name: str
    public_key: bytes
    sign_count: int
    created: datetime
    last_used: datetime | None


class NewPasskey(Struct, frozen=True):
    """A passkey that a browser has just created."""

    credential: bytes
    public_key: bytes
    sign_count: int
    name: str


class FactorStore:
    """All SQL about second factors; a row belongs to one user, who was found in a scope before."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totp(self, user_id: UUID) -> bytes | None:
        """Return the encrypted TOTP secret of a user."""
        async with self._database.connection() as connection:
            return cast("bytes | None", await connection.fetchval("SELECT totp FROM users WHERE uid = $1", user_id))

    async def spend_step(self, user_id: UUID, step: int) -> bool:
        """Accept a TOTP step if it is later than the last one; of two concurrent calls one succeeds."""
        async with self._database.connection() as connection:
            query = "UPDATE users SET totp_step = $2 WHERE uid = $1 AND totp_step < $2 RETURNING true"
            return bool(await connection.fetchval(query, user_id, step))

    async def set_totp(self, user: User, sealed: bytes | None, step: int, actor: Actor) -> None:
        """Store a new secret and its used step, or remove the secret."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(
                "UPDATE users SET totp = $2, totp_step = $3 WHERE uid = $1", user.uid, sealed, step
            )
            details = {"before": {"totp": user.has_totp}, "after": {"totp": sealed is not None}}
            await _record(connection, actor, "users.totp", user, details)

    async def passkeys(self, user_id: UUID) -> Sequence[Passkey]:
        """Return the passkeys of a user, oldest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(f"{_PASSKEYS} WHERE user_id = $1 ORDER BY created", user_id)
        return [_passkey(row) for row in rows]

    async def find_passkey(self, credential: bytes) -> Passkey | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(f"{_PASSKEYS} WHERE credential = $1", credential)
        return None if row is None else _passkey(row)

    async def add_passkey(self, user: User, made: NewPasskey, actor: Actor) -> None:
        async with self._database.connection() as connection, connection.transaction():
            await insert_passkey(connection, user, made, actor)

    async def use_passkey(self, passkey: Passkey, sign_count: int) -> bool:
        """Record the use; return False if the counter was ahead, as with a cloned passkey."""
        query = """
        UPDATE passkeys SET sign_count = $2, last_used = now()
        WHERE credential = $1 AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0)) RETURNING true
        """
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(query, passkey.credential, sign_count))

    async def remove_passkey(self, user: User, passkey_id: UUID, actor: Actor) -> bool:
        """Remove one passkey of a user; return whether it existed."""
        async with self._database.connection() as connection, connection.transaction():
            query = "DELETE FROM passkeys WHERE user_id = $1 AND passkey_id = $2 RETURNING name"
            name = await connection.fetchval(query, user.uid, passkey_id)
            if name is None:
                await confirm_earlier(connection)
                return False
            details = {"before": {"passkey": str(name)}, "after": {"passkey": None}}
            await _record(connection, actor, "users.passkey-remove", user, details)
        return True

    async def set_recovery_codes(self, user: User, digests: Sequence[bytes], actor: Actor) -> None:
        """Replace the recovery codes."""
        async with self._database.connection() as connection, connection.transaction():
            await insert_recovery_codes(connection, user.uid, digests)
            await _record(connection, actor, "users.recovery-codes", user, {"after": {"codes": len(digests)}})

    async def spend_recovery_code(self, user_id: UUID, candidates: Sequence[bytes]) -> bool:
        """Spend a code under any pepper key; return whether it was valid."""
        query = """
        UPDATE recovery_codes SET used = now()
        WHERE user_id = $1 AND digest = ANY ($2::bytea[]) AND used IS NULL RETURNING true
        """
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(query, user_id, list(candidates)))

    async def recovery_codes_left(self, user_id: UUID) -> int:
        async with self._database.connection() as connection:
            query = "SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used IS NULL"
            return cast("int", await connection.fetchval(query, user_id))


async def insert_passkey(connection: Connection, user: User, made: NewPasskey, actor: Actor) -> None:
    """Add a passkey inside the transaction of the caller."""
    try:
        await connection.execute(
            _INSERT_PASSKEY, made.credential, user.uid, made.name, made.public_key, made.sign_count
        )
    except asyncpg.UniqueViolationError:
        raise NameTaken("This passkey is already in use.") from None
    details = {"before": {"passkey": None}, "after": {"passkey": made.name}}
    await _record(connection, actor, "users.passkey-add", user, details)


async def insert_recovery_codes(connection: Connection, user_id: UUID, digests: Sequence[bytes]) -> None:
    """Replace the recovery codes inside the transaction of the caller."""
    await connection.execute("DELETE FROM recovery_codes WHERE user_id = $1", user_id)
    query = "INSERT INTO recovery_codes (user_id, digest) SELECT $1, unnest($2::bytea[])"
    await connection.execute(query, user_id, list(digests))


async def _record(connection: Connection, actor: Actor, action: str, user: User, details: Mapping[str, object]) -> None:
    tenant = next(iter(user.tenants)) if len(user.tenants) == 1 else None
    await record_event(connection, actor, action, f"user:{user.name}", details, tenant=tenant)


def _passkey(row: Row) -> Passkey:
    return Passkey(
        passkey_id=cast("UUID", row["passkey_id"]),
        credential=cast("bytes", row["credential"]),
        user_id=cast("UUID", row["user_id"]),
        name=str(row["name"]),
        public_key=cast("bytes", row["public_key"]),
        sign_count=cast("int", row["sign_count"]),
        created=cast("datetime", row["created"]),
        last_used=cast("datetime | None", row["last_used"]),
    )


def creation_options(origin: ClientOrigin, handle: bytes, name: str, challenge: bytes, known: list[bytes]) -> str:
    """Return the browser's options to create a discoverable passkey, as JSON."""
    _check_site(origin)
    if len(known) >= MAX_PASSKEYS:
        raise SchemaViolation(f"A user has at most {MAX_PASSKEYS} passkeys.")
    options = generate_registration_options(
        rp_id=origin.host,
        rp_name=ISSUER,
        user_id=handle,
        user_name=name,
        challenge=challenge,
        timeout=PASSKEY_TIMEOUT_MS,
        exclude_credentials=[PublicKeyCredentialDescriptor(id=credential) for credential in known],
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
    )
    return options_to_json(options)


def verify_creation(origin: ClientOrigin, answer: str, challenge: bytes | None, name: str) -> NewPasskey:
    """Return the verified passkey that the browser created, or raise LoginFailed."""
    _check_answer(answer, challenge)
    assert challenge is not None
    try:
        made = verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=origin.host,
            expected_origin=origin.site,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _rejected() from None
    return NewPasskey(made.credential_id, made.credential_public_key, made.sign_count, checked_passkey_name(name))


def request_options(origin: ClientOrigin, challenge: bytes) -> str:
    """Return the browser's options to log in with any passkey of this site, as JSON."""
    _check_site(origin)
    options = generate_authentication_options(
        rp_id=origin.host,
        challenge=challenge,
        timeout=PASSKEY_TIMEOUT_MS,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return options_to_json(options)


def credential_in(answer: str) -> bytes:
    """Return the credential id in a browser's answer, not verified."""
    if len(answer) > MAX_PASSKEY_ANSWER:
        raise _rejected()
    try:
        return parse_authentication_credential_json(answer).raw_id
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _rejected() from None


def verify_assertion(origin: ClientOrigin, answer: str, challenge: bytes | None, passkey: Passkey) -> int:
    """Return the passkey's new counter if the answer verifies, or raise LoginFailed."""
    _check_answer(answer, challenge)
    assert challenge is not None
    try:
        proven = verify_authentication_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=origin.host,
            expected_origin=origin.site,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _rejected() from None
    return proven.new_sign_count


def checked_passkey_name(text: str) -> str:
    name = " ".join(text.split())[:MAX_PASSKEY_NAME]
    return name if name.isprintable() and name else "Passkey"


def _check_site(origin: ClientOrigin) -> None:
    if not origin.takes_passkeys:
        raise SchemaViolation("Browsers make passkeys for a host name, not for an address: open this site by its name.")


def _check_answer(answer: str, challenge: bytes | None) -> None:
    if challenge is None or len(answer) > MAX_PASSKEY_ANSWER:
        raise _rejected()
    try:
        if not isinstance(json.loads(answer), dict):
            raise _rejected()
    except ValueError:
        raise _rejected() from None


def _rejected() -> LoginFailed:
    return LoginFailed("This passkey was not accepted; try again.")
