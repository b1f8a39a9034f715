"""How an API key is written: `mwk_<id>_<256 bits><checksum>`, and what of it is kept.

Security: secrets pass through here. The checksum lets scanners of source code tell a key from chance, and lets a
mistyped key be refused without asking the database; it proves nothing else.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from pathlib import Path

from mailwarden.errors import ConfigurationError

MIN_PEPPER = 32
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # the fewest digits of base 62 that hold 256 bits
_CHECKSUM_LENGTH = 6  # and 32 bits
_FORM = re.compile(r"mwk_([0-9a-z]{12})_[0-9A-Za-z]{49}", re.ASCII)
_ID_DIGITS = string.digits + string.ascii_lowercase


def new_key() -> tuple[str, str]:
    """Return the id and the whole text of a new key."""
    key_id = "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))
    body = f"mwk_{key_id}_{_base62(secrets.randbits(256), _SECRET_LENGTH)}"
    return key_id, body + _checksum(body)


def id_in(text: str) -> str | None:
    """Return the id in the text of a key, or None where it cannot be a key."""
    match = _FORM.fullmatch(text)
    if match is None or not hmac.compare_digest(_checksum(text[:-_CHECKSUM_LENGTH]), text[-_CHECKSUM_LENGTH:]):
        return None
    return match.group(1)


def digest_of(text: str, pepper: bytes) -> bytes:
    """Return what is stored of a key: useless without the pepper, which the database does not have."""
    return hmac.digest(pepper, text.encode(), hashlib.sha256)


def read_pepper(path: Path) -> bytes:
    """Return the server-side secret that every stored key was mixed with."""
    try:
        pepper = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(
            f"apiKeyPepper: {path} cannot be read ({error.strerror}). `mailwarden init` makes it; "
            "by hand: openssl rand -hex 32, in a file that only this user may read. "
            "Keys made with another pepper are no longer known."
        ) from None
    if len(pepper) < MIN_PEPPER:
        raise ConfigurationError(f"apiKeyPepper: {path} holds fewer than {MIN_PEPPER} bytes.")
    return pepper


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))
