"""Letters in disguise, and names in the letters of their own language, which are none."""

import pytest

from mailwarden.analysis.links.confusables import disguise_of, reads_as


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Αmаzоn", "amazon"),
        ("ᴘᴀʏᴘᴀʟ", "paypal"),
        ("𝗣𝗮𝘆𝗣𝗮𝗹", "paypal"),
        ("Pay\u200bPal", "paypal"),
        ("P\U000e0130ayPal", "paypal"),
        ("ＰａｙＰａｌ", "paypal"),
    ],
)
def test_confusable_text_is_folded_and_reported(text: str, plain: str) -> None:
    assert reads_as(text) == plain
    assert disguise_of(text)


def test_a_direction_override_is_reported() -> None:
    assert "direction" in disguise_of("gnp\u202eexe.doc")


@pytest.mark.parametrize(
    "name", ["Jürgen Müller", "Łukasz Żak", "Иван Петров", "Νίκος", "敖佳", "楽天カード", "דוד",
             "\u200fדוד\u200f", "Ada 👩\u200d💻", "µTorrent"]
)  # fmt: skip
def test_names_of_all_languages_are_no_disguise(name: str) -> None:
    assert disguise_of(name) == ""
