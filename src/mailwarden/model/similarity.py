"""The keys by which a message is compared with others, and the similarity of two texts."""

from enum import StrEnum

from msgspec import Struct

BINS = 32  # of a sketch
BIN_BYTES = 2
SIMILAR = 0.5  # estimated share of common word pairs from which two texts are near-identical
_EMPTY = b"\0" * BIN_BYTES


class KeyKind(StrEnum):
    """The common property of two messages with the same key."""

    TEXT = "text"  # a part of the sketch; the whole sketches must be similar as well
    FILES = "files"  # all attached files
    LINK = "link"  # host and path pattern of a link that few others send
    SENDER = "sender"  # the subject pattern and the sender's domain
    NETWORK = "network"  # the subject pattern and the sending network
    TARGET = "target"  # the subject pattern, and host and path pattern of a link
    WORDS = "words"  # a short text, and its subject pattern or the sender's domain


class Key(Struct, frozen=True, array_like=True):
    kind: KeyKind
    value: int  # 64 bits, signed


class Similarity(Struct, frozen=True, omit_defaults=True):
    """The keys of one message, in the order in which they are used, and the sketch of its text."""

    keys: tuple[Key, ...] = ()
    sketch: bytes = b""  # BINS numbers; zero is an empty bin


def resemblance(one: bytes, other: bytes) -> float:
    """Return the estimated Jaccard similarity of two texts: common word pairs, as a share of all."""
    if not one or len(one) != len(other):
        return 0.0
    pairs = [
        (one[start : start + BIN_BYTES], other[start : start + BIN_BYTES]) for start in range(0, len(one), BIN_BYTES)
    ]
    used = sum(1 for left, right in pairs if left != _EMPTY or right != _EMPTY)
    same = sum(1 for left, right in pairs if left == right != _EMPTY)
    return same / used if used else 0.0
