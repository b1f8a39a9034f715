"""The words by which links are judged, read once."""

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

import msgspec
from msgspec import Struct
from ruamel.yaml import YAML


class LinkWords(Struct, frozen=True):
    buttons: re.Pattern[str]
    calls: re.Pattern[str]
    goodbyes: re.Pattern[str]
    paths: re.Pattern[str]
    hosts: re.Pattern[str]
    kits: re.Pattern[str]


class _File(Struct, frozen=True):
    buttons: dict[str, str]
    calls: str
    goodbyes: str
    paths: str
    hosts: str
    kits: tuple[str, ...]


@lru_cache(maxsize=1)
def load_link_words() -> LinkWords:
    text = files("mailwarden.analysis.analyzers").joinpath("urls.yml").read_text("utf-8")
    read = msgspec.convert(YAML(typ="safe").load(text), _File)
    return LinkWords(
        buttons=_pattern(word for words in read.buttons.values() for word in _words(words)),
        calls=_pattern(_words(read.calls)),
        goodbyes=_pattern(_words(read.goodbyes)),
        paths=_whole(_words(read.paths)),
        hosts=_whole(_words(read.hosts)),
        kits=re.compile("|".join(read.kits)),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split("|")) if word)


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for stems: each begins a word, where its script has words."""
    stems = sorted(set(words), key=lambda word: (-len(word), word))
    spaced = "|".join(re.escape(word) for word in stems if word < "\u3000")
    unspaced = "|".join(re.escape(word) for word in stems if word >= "\u3000")
    return re.compile(rf"(?<!\w)(?:{spaced})|(?:{unspaced})")


def _whole(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for words between signs or ends: `login` and `my-login`, never `blogging`."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, words))})(?![a-z])")
