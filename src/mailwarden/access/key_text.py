"""How an API key is written: `mwk_<id>_<256 bits><checksum>`, and what of it is kept.

Security: secrets pass through here. The checksum lets scanners of source code tell a key from chance, and lets a
mistyped key be refused without asking the database; it proves nothing else.
"""

import re
import secrets
import string
import zlib

KEY_PURPOSE = b"mailwarden api keys 1"  # of the key, derived from the pepper, that stored digests are made with
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
    if match is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        return None
    return match.group(1)


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))
