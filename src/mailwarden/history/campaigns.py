"""Campaigns: messages that are similar, by the keys that a worker computed.

A message joins the campaign of the stored message with the most similar text, or else of one with another common key.
The first message of a campaign stores all its keys; a message that joins by another key than its text stores the keys
of its text; all others store none. So similarity is not passed on: a message resembles a stored one, and a stored one
has a key of the first message.
"""

from collections.abc import Mapping
from operator import itemgetter

from msgspec import Struct

from mailwarden.model.record import CampaignIds
from mailwarden.model.similarity import SIMILAR, KeyKind, Similarity, resemblance


class Reference(Struct, frozen=True):
    """A message that others are compared with: its campaign and the sketch of its text."""

    campaign: CampaignIds
    sketch: bytes = b""


class Match(Struct, frozen=True):
    """The stored message that a message resembles, and what they have in common."""

    reference: Reference
    kind: KeyKind


def match(similarity: Similarity, stored: Mapping[int, Reference]) -> Match | None:
    """Return the best match of a message among those that its keys lead to."""
    found = [(key.kind, stored[key.value]) for key in similarity.keys if key.value in stored]
    texts = [(resemblance(similarity.sketch, each.sketch), each) for kind, each in found if kind is KeyKind.TEXT]
    best = max(texts, key=itemgetter(0), default=None)
    if best and best[0] >= SIMILAR:
        return Match(best[1], KeyKind.TEXT)
    return next((Match(each, kind) for kind, each in found if kind is not KeyKind.TEXT), None)


def keys_to_store(similarity: Similarity, found: Match | None) -> tuple[int, ...]:
    """Return the keys that lead later messages to this one."""
    if found is None:
        return tuple(key.value for key in similarity.keys)
    if found.kind is KeyKind.TEXT:
        return ()
    return tuple(key.value for key in similarity.keys if key.kind is KeyKind.TEXT)
