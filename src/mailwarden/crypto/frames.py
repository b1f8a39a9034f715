"""Encrypts a message in frames of AES-256-GCM, so that it is never whole in memory.

The head has the version, the id of the key, and a salt; the key of this one message is derived from both. Each frame is
encrypted separately. Its nonce is its number and a flag for the last frame, so missing, repeated or reordered frames
are detected.

Security: whole messages pass through here. An encrypted message opens only with the context that it was bound to.
"""

import secrets
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mailwarden.crypto.keyring import ID, BrokenSeal, KeyRing

FRAME = 262_144  # bytes of a message in one frame
TAG = 16
_VERSION = b"MWQ\x01"
_SALT = 32
HEAD = len(_VERSION) + ID + _SALT
_PURPOSE = b"mailwarden message frames 1"


def seal_frames(ring: KeyRing, bound: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the head and every encrypted frame."""
    head = _VERSION + ring.current.key_id + secrets.token_bytes(_SALT)
    cipher, data = _cipher(ring, head, bound)
    yield head
    number = 0
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > FRAME:  # the last frame has its own nonce, so a full frame waits for more bytes
            frame = bytes(held[:FRAME])
            del held[:FRAME]
            yield cipher.encrypt(_nonce(number, last=False), frame, data)
            number += 1
    yield cipher.encrypt(_nonce(number, last=True), bytes(held), data)


class FrameOpener:
    """Decrypts a message from chunks of any size; the message is complete only after `finish` has returned."""

    def __init__(self, ring: KeyRing, bound: bytes) -> None:
        self._ring = ring
        self._bound = bound
        self._held = bytearray()
        self._opened: tuple[AESGCM, bytes] | None = None
        self._number = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        self._held += chunk
        if self._opened is None and len(self._held) >= HEAD:
            head = bytes(self._held[:HEAD])
            if not head.startswith(_VERSION):
                raise BrokenSeal("It was not sealed here.")
            self._opened = _cipher(self._ring, head, self._bound)
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
            raise BrokenSeal("It is cut off.")
        cipher, data = self._opened
        try:
            opened = cipher.decrypt(_nonce(self._number, last=last), frame, data)
        except InvalidTag:
            raise BrokenSeal("It was changed or cut off, or sealed for something else.") from None
        self._number += 1
        return opened


def key_in_head(head: bytes) -> bytes | None:
    """Return the id of the key of an encrypted message from its first bytes, or None if they are not such a head."""
    start = len(_VERSION)
    return head[start : start + ID] if head.startswith(_VERSION) and len(head) >= start + ID else None


def _cipher(ring: KeyRing, head: bytes, bound: bytes) -> tuple[AESGCM, bytes]:
    key = ring.need(head[len(_VERSION) : len(_VERSION) + ID])
    return AESGCM(key.derive(_PURPOSE, head[len(_VERSION) + ID :])), head + bound


def _nonce(number: int, *, last: bool) -> bytes:
    """Return the nonce of a frame; it is unique because each message has its own key."""
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")
