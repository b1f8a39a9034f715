"""Replaces confusable characters: the plain letters that a reader sees in a text of any alphabets.

Security: works on hostile text; one pass, and the result for each character is cached.
"""

import json
import re
from functools import cache, lru_cache
from importlib.resources import files
from unicodedata import category, name, normalize

_UNSEEN = frozenset({"Mn", "Me", "Cf"})  # marks and formats
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
FEW = 3  # so many styled letters are no accident
_SMALL_CAPITAL = re.compile(r"LATIN LETTER SMALL CAPITAL ([A-Z])$")
_WORD = re.compile(r"[^\W\d_]{2,60}")
_OVERRIDES = frozenset("\u202d\u202e")
_EMBEDDINGS = frozenset("\u202a\u202b\u2066\u2067\u2068")
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_HIDDEN_BETWEEN = re.compile(
    "[A-Za-z][\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u3164\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]{1,20}[A-Za-z]"
)
_STYLED = re.compile("[\U0001d400-\U0001d7ff\U0001f130-\U0001f189\u24b6-\u24e9]")
_WIDE = re.compile(r"[\uff21-\uff5a]")
_EASTERN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def reads_as(text: str) -> str:
    """Return a text in plain lower-case letters, as a hurried reader sees it; other characters stay."""
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join("".join(map(_plain, text)).lower().split())


def disguise_of(text: str) -> str:
    """Return how the letters of a text are disguised, or "" where they are not."""
    if text.isascii():
        return ""
    if not _OVERRIDES.isdisjoint(text):
        return "its direction is turned"
    if not _EMBEDDINGS.isdisjoint(text) and not _RIGHT_TO_LEFT.search(text):
        return "its direction is set without need"
    if _HIDDEN_BETWEEN.search(text):
        return "invisible characters stand between its letters"
    if len(_STYLED.findall(text)) >= FEW or sum(map(_is_small_capital, text)) >= FEW:
        return "its letters are symbols that look like letters"
    if len(_WIDE.findall(text)) >= FEW and not _EASTERN.search(text):
        return "its letters are wide forms"
    if any(map(_is_mixed, _WORD.findall(text))):
        return "letters of several alphabets stand in one word"
    return ""


@lru_cache(maxsize=8_192)
def _plain(character: str) -> str:
    """Return the ASCII letter that a character looks like, or the character itself; "" for what is not seen."""
    if character.isascii():
        return character
    if character in _FILLERS or category(character) in _UNSEEN:
        return ""
    base = normalize("NFKD", character)[:1]
    if base.isascii():
        return base
    if match := _SMALL_CAPITAL.match(name(character, "")):
        return match[1].lower()
    return _likenesses().get(character) or _likenesses().get(base) or character


@lru_cache(maxsize=8_192)
def _is_small_capital(character: str) -> bool:
    return ord(character) > 0x7F and bool(_SMALL_CAPITAL.match(name(character, "")))


def _is_mixed(word: str) -> bool:
    """Return whether a word has letters of Latin and of Greek or Cyrillic that look Latin."""
    if word.isascii():
        return False
    alphabets = {_alphabet(character) for character in word}
    return "LATIN" in alphabets and not alphabets.isdisjoint({"GREEK", "CYRILLIC", "CHEROKEE"})


@lru_cache(maxsize=8_192)
def _alphabet(character: str) -> str:
    """Return the alphabet of a letter that can be taken for a Latin one, or ""."""
    if character.isascii():
        return "LATIN"
    return name(character, "").partition(" ")[0] if character in _likenesses() else ""


@cache
def _likenesses() -> dict[str, str]:
    """Return the letters that look like an ASCII letter, by Unicode's table of confusables."""
    table = json.loads(files("confusable_homoglyphs").joinpath("confusables.json").read_bytes())
    return {
        character: like
        for character, others in table.items()
        if len(character) == 1 and not character.isascii()
        for like in [next((other["c"] for other in others if _is_letter(other["c"])), "")]
        if like
    }


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text.isalpha()
