"""How an entry lies in the replica: under the key by which messages meet it, a hash as bytes, a person by name."""

from collections.abc import Iterable

from mailwarden.lists.kinds import KINDS

Row = tuple[bytes, str, int | None, int | str]
"""Key, entry, expiry in milliseconds, comment; see the tables in `replica_file.py`."""

_HASHES = frozenset({"hash", "sha256"})


def is_plain(kind_name: str) -> bool:
    """Tell whether the entry itself is the key, as it is for most kinds."""
    return kind_name not in _HASHES and kind_name != "person"


def place_of(kind_name: str, entry: str) -> tuple[bytes, str]:
    """Return the key under which an entry lies and the entry, which is empty where the key says it already."""
    if kind_name in _HASHES:
        return bytes.fromhex(entry), ""
    key = KINDS[kind_name].key(entry)
    return key.encode(), "" if key == entry else entry


def entry_at(kind_name: str, key: bytes, entry: str) -> str:
    """Return the entry that lies at a place."""
    return entry or (key.hex() if kind_name in _HASHES else key.decode())


def keys_of(kind_name: str, candidates: Iterable[str]) -> list[bytes]:
    """Return the keys of candidates in their order, each once, without those under which nothing can lie."""
    try:
        if kind_name in _HASHES:
            return [bytes.fromhex(candidate) for candidate in dict.fromkeys(candidates)]
        return [candidate.encode() for candidate in dict.fromkeys(candidates)]
    except (UnicodeEncodeError, ValueError):
        return [key for candidate in candidates for key in _whole(kind_name, candidate)]


def _whole(kind_name: str, candidate: str) -> list[bytes]:
    """Return the key of one candidate; half a surrogate pair, or half a hash, has none."""
    try:
        return [bytes.fromhex(candidate) if kind_name in _HASHES else candidate.encode()]
    except (UnicodeEncodeError, ValueError):
        return []
