"""How an API key is written."""

import re

import pytest

from mailwarden.access.key_text import id_in, new_key


def test_a_key_has_its_form_and_names_its_id():
    key_id, text = new_key()
    assert re.fullmatch(r"mwk_[0-9a-z]{12}_[0-9A-Za-z]{49}", text)
    assert id_in(text) == key_id


def test_no_two_keys_are_alike():
    made = [new_key() for _ in range(100)]
    assert len({key_id for key_id, _ in made}) == len({text for _, text in made}) == 100


def test_one_wrong_character_anywhere_is_told_without_a_look_into_the_database():
    _, text = new_key()
    for place in range(len(text)):
        wrong = "x" if text[place] != "x" else "y"
        assert id_in(text[:place] + wrong + text[place + 1 :]) is None


@pytest.mark.parametrize("text", ["", "mwk", "mwk__", "mwk_" + "a" * 12 + "_" + "\u0660" * 49, "x" * 100_000])
def test_what_is_no_key_has_no_id(text):
    assert id_in(text) is None
    _, good = new_key()
    assert id_in(good + "\n") is None
