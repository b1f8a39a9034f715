"""A message as it is kept: sealed in frames, so that none of it stands in memory whole.

The head holds the version and a salt, from which the key of this one message is made. Every frame is sealed by itself;
its nonce is its number and whether it is the last, so that frames that are missing, doubled or exchanged are noticed.

Security: whole messages pass through here. A sealed message opens for its tenant and under its address alone.
"""

import secrets
from collections.abc import Iterable, Iterator
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

FRAME = 262_144  # bytes of a message in one frame
TAG = 16
_VERSION = b"MWQ\x01"
_SALT = 32
HEAD = len(_VERSION) + _SALT


class BrokenBody(Exception):
    """The bytes are not those that were sealed for this tenant under this address."""


def sealed_size(size: int) -> int:
    """Return how many bytes a message of this size takes when it is sealed."""
    return HEAD + size + TAG * max(1, -(-size // FRAME))


def seal_frames(key: bytes, tenant: UUID, address: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the head and every sealed frame."""
    head = _VERSION + secrets.token_bytes(_SALT)
    cipher, bound = _cipher(key, head, tenant, address)
    yield head
    number = 0
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > FRAME:  # what is held at the end is the last frame, so a full one waits for more
            frame = bytes(held[:FRAME])
            del held[:FRAME]
            yield cipher.encrypt(_nonce(number, last=False), frame, bound)
            number += 1
    yield cipher.encrypt(_nonce(number, last=True), bytes(held), bound)


def open_frames(key: bytes, tenant: UUID, address: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the message piece by piece; raise BrokenBody as soon as a piece is not what was sealed."""
    opener = FrameOpener(key, tenant, address)
    for chunk in chunks:
        yield from opener.take(chunk)
    yield opener.finish()


class FrameOpener:
    """Takes sealed bytes as they come, and gives the message back; nothing is whole before `finish` has returned."""

    def __init__(self, key: bytes, tenant: UUID, address: bytes) -> None:
        self._key = key
        self._tenant = tenant
        self._address = address
        self._held = bytearray()
        self._opened: tuple[AESGCM, bytes] | None = None
        self._number = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        self._held += chunk
        if self._opened is None and len(self._held) >= HEAD:
            head = bytes(self._held[:HEAD])
            if not head.startswith(_VERSION):
                raise BrokenBody("It was not sealed here.")
            self._opened = _cipher(self._key, head, self._tenant, self._address)
            del self._held[:HEAD]
        while self._opened is not None and len(self._held) > FRAME + TAG:
            frame = bytes(self._held[: FRAME + TAG])
            del self._held[: FRAME + TAG]
            yield self._open(frame, last=False)

    def finish(self) -> bytes:
        """Return the last frame."""
        return self._open(bytes(self._held), last=True)

    def _open(self, frame: bytes, *, last: bool) -> bytes:
        if self._opened is None:
            raise BrokenBody("It is cut off.")
        cipher, bound = self._opened
        try:
            opened = cipher.decrypt(_nonce(self._number, last=last), frame, bound)
        except InvalidTag:
            raise BrokenBody("It was changed or cut off, or sealed for another tenant or with another key.") from None
        self._number += 1
        return opened


def _cipher(key: bytes, head: bytes, tenant: UUID, address: bytes) -> tuple[AESGCM, bytes]:
    derived = HKDF(algorithm=SHA256(), length=32, salt=head[len(_VERSION) :], info=b"mailwarden quarantine frames 1")
    return AESGCM(derived.derive(key)), head + tenant.bytes + address


def _nonce(number: int, *, last: bool) -> bytes:
    """Return a nonce that no other frame under this key has: each message has a key of its own."""
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")
