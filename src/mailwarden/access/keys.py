"""API keys of the List API: made, shown once, checked on every call, and revoked within seconds.

Security: secrets pass through here. A key is looked up by its id and compared by a keyed digest in constant time;
none is ever logged, stored or answered again.
"""

import time
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from mailwarden.access.key_store import ApiKey, KeyStore, NewKey
from mailwarden.access.key_text import KEY_PURPOSE, KeyTexts
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.errors import CommandError, InvalidCredentials, KeyNotFound, SchemaViolation
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

MEMORY_SECONDS = 2.0  # how long a looked-up key is believed: a revoked one is refused after this at the latest
MAX_REMEMBERED = 10_000
MAX_NAME = 100
MAX_NETWORKS = 100
TOUCH_AFTER = timedelta(minutes=1)
OVERLAP = timedelta(hours=24)  # for which both keys are good when one is rotated
MAX_OVERLAP = timedelta(days=30)
_ALL = Scope.deployment()
log = get_logger("access.keys")


class Keys:
    """Makes, checks and revokes keys; remembers those just seen for a moment."""

    def __init__(self, store: KeyStore, pepper: KeyRing, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._texts = KeyTexts(pepper)
        self._mac = Mac(pepper, KEY_PURPOSE)
        self._clock = clock
        self._remembered: dict[str, tuple[float, tuple[ApiKey, bytes] | None]] = {}

    async def create(self, scope: Scope, wanted: NewKey, actor: Actor) -> tuple[ApiKey, str]:
        """Make a key; the second of what is returned is its text, which nobody can ever show again."""
        checked = _checked(wanted)
        key_id, text = self._texts.new()
        return await self._store.create(scope, key_id, self._mac.sign(text.encode()), checked, actor), text

    async def list(self, scope: Scope) -> Sequence[ApiKey]:
        """Return the keys of the scope, oldest first."""
        return await self._store.list(scope)

    async def find(self, scope: Scope, key_id: str) -> ApiKey:
        """Return a key of the scope, valid or not."""
        found = await self._store.find(scope, key_id)
        if found is None:
            raise KeyNotFound("There is no key with this id.")
        return found[0]

    async def rotate(self, scope: Scope, key_id: str, overlap: timedelta, actor: Actor) -> tuple[ApiKey, str]:
        """Make a key with the same rights; the old one is good until the overlap has passed."""
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise SchemaViolation(f"The old key stays good for at most {MAX_OVERLAP.days} days.")
        new_id, text = self._texts.new()
        digest = self._mac.sign(text.encode())
        made = await self._store.rotate(scope, key_id, new_id, digest, overlap=overlap.total_seconds(), actor=actor)
        self._remembered.pop(key_id, None)
        return made, text

    async def revoke(self, scope: Scope, key_id: str, actor: Actor) -> bool:
        """End a key for good, everywhere within seconds; tell whether there was one."""
        revoked = await self._store.revoke(scope, key_id, actor)
        self._remembered.pop(key_id, None)
        return revoked

    async def authenticate(self, text: str, address: str | None) -> ApiKey:
        """Return the valid key that this is the text of, used from this address.

        The database is asked only about texts that were made here: see `KeyTexts`.
        """
        key_id = self._texts.id_in(text)
        found = await self._find(key_id) if key_id is not None else None
        if found is None:
            raise _not_known()
        key, digest = found
        now = datetime.now(UTC)
        if not self._mac.verify(text.encode(), digest) or not key.is_valid(now):
            raise _not_known()
        if not key.admits(address):
            raise InvalidCredentials("This API key is not valid from this address.", scheme="apikey")
        if key.last_used is None or now - key.last_used >= TOUCH_AFTER:
            await self._store.touch(_ALL, key.key_id)
            self._remembered.pop(key.key_id, None)  # so that the next look finds the new time
        return key

    async def _find(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        now = self._clock()
        remembered = self._remembered.get(key_id)
        if remembered is not None and now < remembered[0]:
            return remembered[1]
        found = await self._store.find(_ALL, key_id)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        # Counted from before the question: an answer is never believed longer than it should be.
        self._remembered[key_id] = (now + MEMORY_SECONDS, found)
        return found


def _checked(wanted: NewKey) -> NewKey:
    name = unicodedata.normalize("NFC", wanted.name.strip())
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise SchemaViolation(f"A key's name has 1 to {MAX_NAME} printable characters.")
    if not wanted.scopes:
        raise CommandError("A key without a scope is of no use: give lists:read, lists:write or both.")
    if len(wanted.networks) > MAX_NETWORKS:
        raise SchemaViolation(f"A key has at most {MAX_NETWORKS} networks.")
    if wanted.expires is not None and wanted.expires <= datetime.now(UTC):
        raise SchemaViolation("A key cannot expire before it is made.")
    return NewKey(name, wanted.scopes, wanted.tenants, wanted.networks, wanted.expires)


def _not_known() -> InvalidCredentials:
    return InvalidCredentials("This API key is not known, or no longer valid.", scheme="apikey")
