"""Signs webhooks by Standard Webhooks 1.0: an HMAC-SHA-256 over the id, the time and the body, under each secret.

During a rotation two secrets sign every webhook. A receiver accepts it if one of the signatures is valid, so it can
take the new secret at any time of the overlap.

Security: secrets pass through here.
"""

import binascii
import secrets as random
from collections.abc import Mapping, Sequence

from pybase64 import b64decode, b64encode

from mailwarden.crypto.mac import keyed_digest
from mailwarden.errors import SchemaViolation

PREFIX = "whsec_"
SIZE = 32  # bytes of a new secret
MIN_SIZE, MAX_SIZE = 24, 64  # bytes; the limits of the standard
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def new_secret() -> str:
    """Return a new random secret in the text form of the standard."""
    return PREFIX + b64encode(random.token_bytes(SIZE)).decode("ascii")


def secret_key(secret: str) -> bytes:
    """Return the key of a secret, or raise SchemaViolation."""
    try:
        key = b64decode(secret.removeprefix(PREFIX).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        key = b""
    if not secret.startswith(PREFIX) or not MIN_SIZE <= len(key) <= MAX_SIZE:
        raise SchemaViolation(
            f"The secret must be `{PREFIX}` and {MIN_SIZE} to {MAX_SIZE} bytes in base64. Omit it to have one made."
        )
    return key


def signed_headers(secrets: Sequence[str], webhook_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the header fields of one webhook, with a signature under each secret.

    The id has no full stop: it separates the three parts of the signed text.
    """
    assert "." not in webhook_id, "the id would be ambiguous"
    signed = f"{webhook_id}.{timestamp}.".encode("ascii") + body
    digests = (b64encode(keyed_digest(secret_key(secret), signed)).decode("ascii") for secret in secrets)
    return {
        ID: webhook_id,
        TIMESTAMP: str(timestamp),
        SIGNATURE: " ".join(f"v1,{digest}" for digest in digests),
    }
