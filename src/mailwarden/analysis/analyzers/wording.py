"""Reports odd writing: capitals, emoji, random tails, split words, source code.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Fact, Finding

SHOUT = 8  # letters; shorter subjects are names and numbers
SPLIT = 3  # words in pieces that are no accident
_TAIL_LENGTH = 80
_PICTURE = re.compile(r"[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]")
_GAP_TAIL = re.compile(r"\S\s{6,}\S{3,40}\s{0,9}$")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,60}\.[\w.-]{2,60}")
_MONEY = re.compile(r"[$€£]\s?\d[\d.,' ]{1,12}|\d[\d.,' ]{1,12}\s?(?:€|\$|£|eur\b|usd\b|euro)", re.IGNORECASE)
_SOURCE = re.compile(
    r"</?(?:font|table|td|tr|body|html|style|select|object|textarea|center)\b[^<>]{0,300}>", re.IGNORECASE
)
_SPACED = re.compile(r"(?:\b\w\s){6,}\w\b")
_LEET = re.compile(r"\b(?=\w{0,20}[A-Za-z])[A-Za-z]{1,12}[013457@$!][A-Za-z]{1,12}[013457@$!][A-Za-z]{1,12}\b")
# Words with separated letters, which programs do not read.
_SPLIT = re.compile(r"\b(?:[A-Za-z] ){4,20}[A-Za-z]\b|\b(?:[A-Za-z][.\-_*]){4,20}[A-Za-z]\b")
_LIKE_SPLIT = re2.compile(r"(?:[A-Za-z] ){4}[A-Za-z]|(?:[A-Za-z][.\-_*]){4}[A-Za-z]")  # occurs in every such word


class WordingAnalyzer:
    name: ClassVar[str] = "wording"

    def examine(self, view: View) -> Iterator[Finding]:
        for what, facts in (*_look_at_subject(view), *_look_at_text(view)):
            yield Finding(f"wording.{what}", facts=facts)


def _look_at_subject(view: View) -> Iterator[tuple[str, dict[str, Fact]]]:
    subject = view.subject
    if _shouts(subject):
        yield "shouting", {"subject": subject[: SHOWN.word]}
    if pictures := len(_PICTURE.findall(subject)):
        yield "emojis" if pictures > 1 else "emoji", {"count": pictures}
    if subject.count("!") > 1:
        yield "exclaiming", {"count": subject.count("!")}
    if match := _GAP_TAIL.search(subject):
        yield "padded-subject", {"tail": match.group()[-_TAIL_LENGTH:].strip()}
    if match := _MONEY.search(subject):
        yield "money", {"amount": match.group()[: SHOWN.word]}
    lower = subject.lower()
    addresses = {recipient.lower() for recipient in view.recipients}
    if any(address and address in lower for address in addresses):
        yield "recipient-in-subject", {"subject": subject[: SHOWN.word]}
    elif match := _ADDRESS.search(subject):
        yield "address-in-subject", {"address": match.group()[: SHOWN.word]}
    if _SPACED.search(subject) or _LEET.search(subject):
        yield "obfuscated-subject", {"subject": subject[: SHOWN.word]}


def _shouts(subject: str) -> bool:
    """Return whether several words are in capitals; scripts without capitals do not count."""
    letters = [character for character in subject if character.lower() != character.upper()]
    return len(letters) >= SHOUT and " " in subject.strip() and all(character.isupper() for character in letters)


def _look_at_text(view: View) -> Iterator[tuple[str, dict[str, Fact]]]:
    text = view.text
    if view.pages and "<" in text and len(_SOURCE.findall(text)) > 1:
        yield "html-source-shown", {}
    if view.pages and not text.strip():
        yield "no-text", {}
    if _LIKE_SPLIT.search(text) and len(split := _SPLIT.findall(text)) >= SPLIT:
        yield "split-words", {"words": ", ".join(split[:3])[: SHOWN.word]}
