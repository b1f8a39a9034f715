"""The text of an API key: `mwk_<id>_<256 bits><proof><checksum>`.

The proof is a MAC under a key derived from the pepper, so that a forged key is rejected without a query. The checksum
lets source code scanners, which have no pepper, recognise a key.

Security: secrets pass through here.
"""

import re
import secrets
import string
import zlib

from mailwarden.crypto.keyring import ID, KeyRing
from mailwarden.crypto.mac import Mac, equal

_PROOF_PURPOSE = b"mailwarden api key proofs 1"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # base-62 digits for 256 bits
_PROOF_LENGTH = 11  # for 64 bits
_CHECKSUM_LENGTH = 6  # for 32 bits
_FORM = re.compile(r"mwk_([0-9a-z]{12})_[0-9A-Za-z]{60}", re.ASCII)
_ID_DIGITS = string.digits + string.ascii_lowercase


class KeyTexts:
    """Creates key texts, and recognises texts created under any pepper key of the ring."""

    def __init__(self, pepper: KeyRing) -> None:
        self._mac = Mac(pepper, _PROOF_PURPOSE)

    def new(self) -> tuple[str, str]:
        """Return the id and the whole text of a new key."""
        key_id = "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))
        body = f"mwk_{key_id}_{_base62(secrets.randbits(256), _SECRET_LENGTH)}"
        body += _proof(self._mac.sign(body.encode()))
        return key_id, body + _checksum(body)

    def id_in(self, text: str) -> str | None:
        """Return the id in a key's text, or None if the proof or checksum is wrong."""
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
