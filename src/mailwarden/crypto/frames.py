"""Seals a message in frames of AES-256-GCM, so that none of it stands in memory whole.

The head holds the version, the id of the key, and a salt; the key of this one message is derived from both. Every frame
is sealed by itself; its nonce is its number and whether it is the last, so that frames that are missing, doubled or
exchanged are noticed.

Security: whole messages pass through here. A sealed message opens only with what it was bound to.
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


def sealed_size(size: int) -> int:
    """Return how many bytes a message of this size takes when it is sealed."""
    return HEAD + size + TAG * max(1, -(-size // FRAME))


def seal_frames(ring: KeyRing, bound: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the head and every sealed frame."""
    head = _VERSION + ring.current.key_id + secrets.token_bytes(_SALT)
    cipher, data = _cipher(ring, head, bound)
    yield head
    number = 0
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > FRAME:  # what is held at the end is the last frame, so a full one waits for more
            frame = bytes(held[:FRAME])
            del held[:FRAME]
            yield cipher.encrypt(_nonce(number, last=False), frame, data)
            number += 1
    yield cipher.encrypt(_nonce(number, last=True), bytes(held), data)


def open_frames(ring: KeyRing, bound: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the message piece by piece; raise BrokenSeal as soon as a piece is not what was sealed."""
    opener = FrameOpener(ring, bound)
    for chunk in chunks:
        yield from opener.take(chunk)
    yield opener.finish()


class FrameOpener:
    """Takes sealed bytes as they come, and gives the message back; nothing is whole before `finish` has returned."""

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
    """Return the id of the key that a message with this beginning is sealed with; None where it is none of ours."""
    start = len(_VERSION)
    return head[start : start + ID] if head.startswith(_VERSION) and len(head) >= start + ID else None


def _cipher(ring: KeyRing, head: bytes, bound: bytes) -> tuple[AESGCM, bytes]:
    key = ring.need(head[len(_VERSION) : len(_VERSION) + ID])
    return AESGCM(key.derive(_PURPOSE, head[len(_VERSION) + ID :])), head + bound


def _nonce(number: int, *, last: bool) -> bytes:
    """Return a nonce that no other frame under this key has: each message has a key of its own."""
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")
