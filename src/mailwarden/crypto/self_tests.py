"""Known-answer self-tests of the cryptographic primitives, with the vectors of their standards."""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mailwarden.telemetry.self_tests import PYTHON, SelfTest


def _computes_hmac() -> bool:
    digest = hmac.digest(b"Jefe", b"what do ya want for nothing?", "sha256")  # RFC 4231, 4.3
    return digest.hex() == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


def _seals_and_opens() -> bool:
    cipher, nonce = AESGCM(bytes(32)), bytes(12)
    sealed = cipher.encrypt(nonce, bytes(16), None)  # NIST, The Galois/Counter Mode of Operation, test case 14
    if sealed.hex() != "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919":
        return False
    try:
        cipher.decrypt(nonce, sealed[:-1] + b"\0", None)
    except InvalidTag:
        return cipher.decrypt(nonce, sealed, None) == bytes(16)
    return False


def _derives_keys() -> bool:
    derived = HKDF(algorithm=SHA256(), length=42, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)))
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    return derived.derive(b"\x0b" * 22).hex() == expected  # RFC 5869, A.1


# For processes that use secrets.
CRYPTOGRAPHY: tuple[SelfTest, ...] = (
    SelfTest("HMAC", _computes_hmac, PYTHON),
    SelfTest("AES-GCM", _seals_and_opens),
    SelfTest("HKDF", _derives_keys),
)
