"""How an API key is written: `mwk_<id>_<256 bits><proof><checksum>`.

The proof is a MAC of the rest under a key derived from the pepper: whoever does not have a key made here cannot write
one that looks right, and is refused without a question to the database. The checksum lets scanners of source code,
which have no pepper, tell a key from chance.

Security: secrets pass through here. The proof does not replace the stored digest: only keys in the database are valid.
"""

import re
import secrets
import string
import zlib

from mailwarden.crypto.keyring import ID, KeyRing
from mailwarden.crypto.mac import Mac, equal

KEY_PURPOSE = b"mailwarden api keys 1"  # of the key, derived from the pepper, that stored digests are made with
_PROOF_PURPOSE = b"mailwarden api key proofs 1"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # the fewest digits of base 62 that hold 256 bits
_PROOF_LENGTH = 11  # and 64 bits: nobody can try so many
_CHECKSUM_LENGTH = 6  # and 32 bits
_FORM = re.compile(r"mwk_([0-9a-z]{12})_[0-9A-Za-z]{60}", re.ASCII)
_ID_DIGITS = string.digits + string.ascii_lowercase


class KeyTexts:
    """Writes keys, and reads those that were written with a pepper of the ring."""

    def __init__(self, pepper: KeyRing) -> None:
        self._mac = Mac(pepper, _PROOF_PURPOSE)

    def new(self) -> tuple[str, str]:
        """Return the id and the whole text of a new key."""
        key_id = "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))
        body = f"mwk_{key_id}_{_base62(secrets.randbits(256), _SECRET_LENGTH)}"
        body += _proof(self._mac.sign(body.encode()))
        return key_id, body + _checksum(body)

    def id_in(self, text: str) -> str | None:
        """Return the id in the text of a key, or None where it cannot be a key that was made here."""
        match = _FORM.fullmatch(text)
        if match is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
            return None
        body, proof = text[: -_PROOF_LENGTH - _CHECKSUM_LENGTH], text[-_PROOF_LENGTH - _CHECKSUM_LENGTH :]
        given = proof[:_PROOF_LENGTH].encode()
        proofs = [_proof(mac).encode() for mac in self._mac.candidates(body.encode())]
        return match.group(1) if any(equal(each, given) for each in proofs) else None


def _proof(mac: bytes) -> str:
    return _base62(int.from_bytes(mac[ID : ID + 8]), _PROOF_LENGTH)


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))
