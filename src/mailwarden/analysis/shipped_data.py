"""The YAML files of the analyzers, read from one compiled file if it was made from the current files.

Every worker reads them at its start; reading the YAML takes a third of the CPU of that start.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from mailwarden.settings.compiled import CompiledFile

T = TypeVar("T")

FOLDER = Path(__file__).parent
NAMES = (
    "analyzers/images.yml",
    "analyzers/sender_words.yml",
    "links/brands.yml",
    "links/companies.yml",
    "links/hosts.yml",
    "links/words.yml",
)


def read_shipped(name: str, kind: type[T]) -> T:
    """Return the content of a file of NAMES."""
    known = _compiled()
    return msgspec.msgpack.decode(known[name], type=kind) if known is not None else msgspec.convert(_read(name), kind)


def read_files() -> dict[str, msgspec.Raw]:
    """Read all files, to compile them."""
    return {name: msgspec.Raw(msgspec.msgpack.encode(_read(name))) for name in NAMES}


def _read(name: str) -> object:
    from ruamel.yaml import YAML  # noqa: PLC0415 - a worker with the compiled file does not need it

    return YAML(typ="safe").load((FOLDER / name).read_text("utf-8"))


def _sources() -> Iterator[Path]:
    yield from (FOLDER / name for name in NAMES)
    yield Path(__file__)


COMPILED = CompiledFile(FOLDER / "__pycache__" / "shipped_data.msgpack", dict[str, msgspec.Raw], _sources)


@cache
def _compiled() -> dict[str, msgspec.Raw] | None:
    return COMPILED.read()
