"""Finds Bitcoin addresses in a text; their checksum distinguishes them from other random words.

Security: works on hostile text; candidates are bounded in length.
"""

import hashlib
import re

_CANDIDATE = re.compile(r"\b(?:[13][1-9A-HJ-NP-Za-km-z]{25,34}|(?ai:bc1[02-9ac-hj-np-z]{11,71}))\b")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32_SUMS = (1, 0x2BC830A3)  # of bech32 (BIP 173) and bech32m (BIP 350)


def find_bitcoin_address(text: str) -> str:
    """Return the first address whose checksum is right, or ""."""
    for match in _CANDIDATE.finditer(text):
        word = match.group()
        if _is_bech32(word.lower()) if word[:3].lower() == "bc1" else _is_base58(word):
            return word
    return ""


def _is_base58(word: str) -> bool:
    value = 0
    for character in word:
        value = value * 58 + _BASE58.index(character)
    if value >= 1 << 200:
        return False
    raw = value.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()[:4] == raw[21:]


def _is_bech32(word: str) -> bool:
    values = [
        3,
        3,
        0,
        2,
        3,
        *(_BECH32.index(character) for character in word[3:]),
    ]  # the prefix "bc" as BIP 173 expands it
    total = 1
    for value in values:
        top = total >> 25
        total = (total & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            total ^= generator if top >> bit & 1 else 0
    return total in _BECH32_SUMS
