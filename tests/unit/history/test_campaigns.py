"""A message joins the campaign of the most similar stored message, and similarity is not passed on."""

from uuid import uuid4

from mailwarden.history.campaigns import Match, Reference, keys_to_store, match
from mailwarden.model.record import CampaignIds
from mailwarden.model.similarity import BINS, Key, KeyKind, Similarity


def sketch(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2) for number in numbers) * (BINS // len(numbers))


def reference(numbers: bytes = b"") -> Reference:
    return Reference(CampaignIds(uuid4(), uuid4()), numbers)


TEXT, LINK = Key(KeyKind.TEXT, 1), Key(KeyKind.LINK, 2)
MESSAGE = Similarity((TEXT, Key(KeyKind.TEXT, 3), LINK), sketch(1, 2, 3, 4))


def test_a_message_without_a_stored_key_joins_nothing():
    assert match(MESSAGE, {}) is None
    assert match(MESSAGE, {99: reference(MESSAGE.sketch)}) is None


def test_the_most_similar_text_wins_before_other_keys():
    near, nearest, linked = reference(sketch(1, 2, 8, 9)), reference(sketch(1, 2, 3, 9)), reference()
    assert match(MESSAGE, {1: near, 3: nearest, 2: linked}) == Match(nearest, KeyKind.TEXT)


def test_a_text_key_needs_a_similar_sketch():
    other = reference(sketch(1, 7, 8, 9))
    assert match(MESSAGE, {1: other}) is None
    linked = reference()
    assert match(MESSAGE, {1: other, 2: linked}) == Match(linked, KeyKind.LINK)


def test_only_new_texts_store_keys():
    assert keys_to_store(MESSAGE, None) == (1, 3, 2)
    assert keys_to_store(MESSAGE, Match(reference(), KeyKind.TEXT)) == ()
    assert keys_to_store(MESSAGE, Match(reference(), KeyKind.LINK)) == (1, 3)
