"""What is publicly known of a host: whether anybody may stand behind it, or one organisation that many people know."""

from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

import msgspec
from ruamel.yaml import YAML

LABELS = 12  # of a host, from its end, that are looked up


class HostKind(StrEnum):
    SHORTENER = "shortener"
    HOSTING = "hosting"
    STORAGE = "storage"
    DYNAMIC = "dynamic"
    FORM = "form"
    SENDING = "sending"
    GATEWAY = "gateway"
    KNOWN = "known"
    OTHER = "other"


@lru_cache(maxsize=1)
def _facts() -> dict[str, frozenset[str]]:
    text = files("mailwarden.analysis").joinpath("hosts.yml").read_text("utf-8")
    lines = msgspec.convert(YAML(typ="safe").load(text), dict[str, str])
    return {name: frozenset(words.split()) for name, words in lines.items()}


@lru_cache(maxsize=1)
def _kinds() -> dict[str, HostKind]:
    """Return every name with its kind; of two kinds the later of the enumeration holds."""
    return {name: kind for kind in HostKind if kind is not HostKind.OTHER for name in _facts()[kind]}


@lru_cache(maxsize=4_096)
def kind_of(host: str) -> HostKind:
    """Return the kind of a host by the longest name known above it."""
    kinds = _kinds()
    labels = host.split(".")[-LABELS:]
    for start in range(len(labels)):
        if found := kinds.get(".".join(labels[start:])):
            return found
    return HostKind.OTHER


def has_cheap_ending(host: str) -> bool:
    cheap = _facts()["cheap"]
    first, _, last = host.rpartition(".")
    return bool(first) and (last in cheap or f"{first.rpartition('.')[2]}.{last}" in cheap)
