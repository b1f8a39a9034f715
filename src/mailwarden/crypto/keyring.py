"""Key rings: the keys of one secret file. The current key comes first; the others only decrypt and verify.

A file has one key per line, 32 characters or more. Words after the key (`made=2026-11-16`, `retired=2027-01-01`) are
for people and for `mailwarden secrets`; lines that begin with `#` are comments. A key's id is derived from the key, so
the two always match.

Data is never encrypted or signed with a key of the file itself, only with keys derived from it for one purpose
(HKDF-SHA-256, RFC 5869).

Security: secrets pass through here.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from mailwarden.errors import ConfigurationError

MIN_SECRET = 32
ID = 4  # bytes of a key id
_ID_PURPOSE = b"mailwarden key id 1"


class BrokenSeal(ValueError):
    """The bytes were not sealed with a key of the ring for this purpose and context."""


class UnknownKey(BrokenSeal):
    """The ring lacks the key that the bytes name; they can be opened once that key is restored."""


class Key(Struct, frozen=True):
    """One key of a ring."""

    key_id: bytes
    secret: bytes
    made: str = ""
    retired: str = ""  # the day on which another key became current

    @classmethod
    def of(cls, secret: bytes, made: str = "", retired: str = "") -> "Key":
        return cls(_derive(secret, _ID_PURPOSE, None, ID), secret, made, retired)

    @property
    def name(self) -> str:
        """Return the id as hexadecimal text."""
        return self.key_id.hex()

    def derive(self, purpose: bytes, salt: bytes | None = None) -> bytes:
        """Return the derived key of 256 bits for one purpose."""
        return _derive(self.secret, purpose, salt, 32)


class KeyRing:
    def __init__(self, keys: Sequence[Key], origin: str = "the key ring") -> None:
        self.keys = tuple(keys)
        self.origin = origin
        self._by_id = {key.key_id: key for key in self.keys}

    @classmethod
    def of(cls, *secrets: bytes) -> "KeyRing":
        """Return a ring of these secrets, the current one first."""
        return cls([Key.of(secret) for secret in secrets])

    @property
    def current(self) -> Key:
        return self.keys[0]

    def need(self, key_id: bytes) -> Key:
        """Return the key with this id, or raise UnknownKey."""
        key = self._by_id.get(key_id)
        if key is None:
            raise UnknownKey(
                f"It needs the key {key_id.hex()}, which {self.origin} does not hold. Restore that line from a backup."
            )
        return key


def read_ring(path: Path, setting: str) -> KeyRing:
    """Return the keys of a secret file; `setting` is its key in the configuration."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{setting}: cannot read {path} ({error.strerror}). Restore it from your backup, or copy it from another "
            "host: data of its keys cannot be read without it. `mailwarden init` creates the first one."
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{setting}: {path} is not text. It has one key of hex digits a line.") from None
    keys = [_read_line(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not keys or any(len(key.secret) < MIN_SECRET for key in keys):
        raise ConfigurationError(f"{setting}: {path} has a key with fewer than {MIN_SECRET} characters, or none.")
    if len({key.key_id for key in keys}) != len(keys):
        raise ConfigurationError(f"{setting}: {path} has the same key twice.")
    return KeyRing(keys, str(path))


def ring_text(keys: Iterable[Key]) -> str:
    """Return keys in the format of their file."""
    lines = ["# One key a line. The first is current, the others open what they sealed: keep every line.\n"]
    for key in keys:
        words = [key.secret.decode("utf-8")]
        words += [f"made={key.made}"] if key.made else []
        words += [f"retired={key.retired}"] if key.retired else []
        lines.append(" ".join(words) + "\n")
    return "".join(lines)


def _read_line(line: str) -> Key:
    secret, *words = line.split()
    notes = dict(word.partition("=")[::2] for word in words)
    return Key.of(secret.encode("utf-8"), notes.get("made", ""), notes.get("retired", ""))


def _derive(secret: bytes, purpose: bytes, salt: bytes | None, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=purpose).derive(secret)
