"""How an entry lies in the replica: under the key by which messages meet it, a hash as bytes, a person by name."""

from collections.abc import Callable, Iterable, Mapping

from mailwarden.lists.kinds import KINDS

Key = str | bytes
"""Text, or for hashes the bytes themselves, at half the size."""
Row = tuple[Key, str, int | None, int | str]
"""Key, entry, expiry in milliseconds, comment; see the tables in `replica_file.py`."""


def _whole_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) if text.isalnum() else None
    except ValueError:
        return None


def _writable(text: str) -> str | None:
    """Return a candidate that can be stored at all: half a surrogate pair, met in a message, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


_AS_BYTES = frozenset({"hash", "sha256"})
_ENCODERS: Mapping[str, Callable[[str], Key | None]] = {
    name: _whole_hex if name in _AS_BYTES else _writable for name in KINDS
}


def is_plain(kind_name: str) -> bool:
    """Tell whether the entry itself is the key, as it is for most kinds."""
    return kind_name not in _AS_BYTES and kind_name != "person"


def place_of(kind_name: str, entry: str) -> tuple[Key, str]:
    """Return the key under which an entry lies and the entry, which is empty where the key says it already."""
    if kind_name in _AS_BYTES:
        return bytes.fromhex(entry), ""
    key = KINDS[kind_name].key(entry)
    return key, "" if key == entry else entry


def entry_at(key: Key, entry: str) -> str:
    """Return the entry that lies at a place."""
    return entry or (key if isinstance(key, str) else key.hex())


def keys_of(kind_name: str, candidates: Iterable[str]) -> list[Key]:
    """Return the keys of candidates in their order, each once, without those under which nothing can lie."""
    encode = _ENCODERS[kind_name]
    return [key for key in map(encode, dict.fromkeys(candidates)) if key is not None]
