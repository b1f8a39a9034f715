"""Reports text that is hidden from people: text that is not shown, words split by invisible characters.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.text.renderings import Page
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding

NOT_SHOWN = 500  # characters; the line that mailings put before their text for previews is shorter
TINY = 100
PALE = 200
TORN_WORDS = 5
LETTERS = 200
BELOW = 50
LINES = 25  # empty lines before the text below

# Zero-width characters inside Latin, Greek or Cyrillic words; joiners belong to other scripts and to emoji.
_TEARS = re.compile(r"[\u200b\u2060\ufeff\u034f\u180e\u2061-\u2064]")
_TORN = re.compile(rf"[A-Za-zÀ-ɏͰ-ӿ]{_TEARS.pattern}{{1,20}}[A-Za-zÀ-ɏͰ-ӿ]")
_PREVIEW = re.compile(r"[\s\u00a0\u00ad\u034f\u061c\u115f\u180e\u2007\u200b-\u200f\u2060-\u2064\ufeff]{8,2000}")
_LETTER = re.compile(
    r"&#(?:x0{0,4}(?:[46][1-9a-f]|[57][0-9a])|0{0,4}(?:6[5-9]|[78]\d|90|9[7-9]|1[01]\d|12[0-2]));", re.IGNORECASE
)
_BREAK = r"<br\s{0,3}/?>(?:\s|&nbsp;){0,20}"
_FAR = re.compile(f"{_BREAK}(?:{_BREAK}){{{LINES - 1}}}")  # the first by itself, so that it is jumped to
_TAGS = re.compile(r"<[^<>]{0,2000}>")


class ObfuscationAnalyzer:
    name: ClassVar[str] = "obfuscation"

    def examine(self, view: View) -> Iterator[Finding]:
        for page in view.pages:
            if not page.attached:
                yield from _look_at_page(page)
        if _TORN.search(f"{view.subject} {view.sender.name}"):
            yield Finding("obfuscation.invisible-characters-subject")
        torn = _count_torn(view.text)
        if torn >= TORN_WORDS:
            yield Finding("obfuscation.invisible-characters", facts={"count": torn})


def _count_torn(text: str) -> int:
    if text.isascii() or not _TEARS.search(text):
        return 0
    return len(_TORN.findall(_PREVIEW.sub(" ", text)))


def _look_at_page(page: Page) -> Iterator[Finding]:
    place, document = page.place, page.document
    if document.gone_text >= NOT_SHOWN:
        yield Finding("obfuscation.hidden-text", place, {"count": document.gone_text})
    if document.tiny_text >= TINY:
        yield Finding("obfuscation.tiny-text", place, {"count": document.tiny_text})
    if document.pale_text >= PALE:
        yield Finding("obfuscation.white-text", place, {"count": document.pale_text})
    source = page.lower
    if source.count("&#") >= LETTERS:
        letters = len(_LETTER.findall(source))
        if letters >= LETTERS:
            yield Finding("obfuscation.numeric-entities", place, {"count": letters})
    if source.count("<br") >= LINES and (gap := _FAR.search(source)):
        below = len(" ".join(_TAGS.sub(" ", source[gap.end() :]).split()))
        if below >= BELOW:
            yield Finding("obfuscation.text-far-below", place, {"count": below})
