"""A passkey authenticator in software (WebAuthn level 2, attestation `none`), which can be told to cheat."""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


@dataclass
class Authenticator:
    """Holds one passkey for one site."""

    origin: str = "https://mail.example:9081"
    rp_id: str = "mail.example"
    flags: int = PRESENT | VERIFIED
    counter: int = 0
    counts: bool = True
    credential: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def make(self, options: str, **changes: str) -> str:
        """Answer what a page asked for a new passkey."""
        numbers = self.key.public_key().public_numbers()
        public = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.credential).to_bytes(2, "big") + self.credential + cbor2.dumps(public)
        said = {"fmt": "none", "attStmt": {}, "authData": self._data(self.flags | ATTESTED) + attested}
        client = self._client("webauthn.create", options, changes)
        return self._answer({"clientDataJSON": to_text(client), "attestationObject": to_text(cbor2.dumps(said))})

    def sign(self, options: str, **changes: str) -> str:
        """Answer what a page asked for a passkey that exists."""
        data, client = self._data(self.flags), self._client("webauthn.get", options, changes)
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            {
                "clientDataJSON": to_text(client),
                "authenticatorData": to_text(data),
                "signature": to_text(signature),
                "userHandle": None,
            }
        )

    def _data(self, flags: int) -> bytes:
        self.counter += self.counts
        return hashlib.sha256(self.rp_id.encode()).digest() + bytes([flags]) + self.counter.to_bytes(4, "big")

    def _client(self, kind: str, options: str, changes: dict[str, str]) -> bytes:
        said = {"type": kind, "challenge": json.loads(options)["challenge"], "origin": self.origin, **changes}
        return json.dumps(said).encode()

    def _answer(self, response: dict[str, object]) -> str:
        text = to_text(self.credential)
        return json.dumps(
            {"id": text, "rawId": text, "type": "public-key", "response": response, "clientExtensionResults": {}}
        )


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
