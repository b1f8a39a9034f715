"""How an API key is written."""

import re
import zlib

import pytest

from mailwarden.access.key_texts import KeyTexts
from mailwarden.crypto.keyring import KeyRing

TEXTS = KeyTexts(KeyRing.of(b"p" * 32))


def test_a_key_has_its_form_and_names_its_id():
    key_id, text = TEXTS.new()
    assert re.fullmatch(r"mwk_[0-9a-z]{12}_[0-9A-Za-z]{60}", text)
    assert TEXTS.id_in(text) == key_id


def test_no_two_keys_are_alike():
    made = [TEXTS.new() for _ in range(100)]
    assert len({key_id for key_id, _ in made}) == len({text for _, text in made}) == 100


def test_one_wrong_character_is_detected_without_the_database():
    _, text = TEXTS.new()
    for place in range(len(text)):
        wrong = "x" if text[place] != "x" else "y"
        assert TEXTS.id_in(text[:place] + wrong + text[place + 1 :]) is None


@pytest.mark.parametrize("text", ["", "mwk", "mwk__", "mwk_" + "a" * 12 + "_" + "\u0660" * 60, "x" * 100_000])
def test_an_invalid_key_has_no_id(text):
    assert TEXTS.id_in(text) is None
    _, good = TEXTS.new()
    assert TEXTS.id_in(good + "\n") is None


def test_a_key_of_another_pepper_is_refused_though_its_checksum_is_right():
    _, foreign = KeyTexts(KeyRing.of(b"q" * 32)).new()
    assert TEXTS.id_in(foreign) is None


def test_a_changed_key_is_refused_though_its_checksum_is_right():
    _, text = TEXTS.new()
    changed = "mwk_" + "0" * 12 + text[16:-6]
    assert TEXTS.id_in(changed + checksum(changed)) is None
    assert TEXTS.id_in(text[:-6] + checksum(text[:-6])) is not None, "the checksum of this test is the right one"


def test_a_key_is_known_after_a_rotation_of_the_pepper():
    key_id, text = TEXTS.new()
    assert KeyTexts(KeyRing.of(b"q" * 32, b"p" * 32)).id_in(text) == key_id


def checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits
