"""Passkeys (WebAuthn level 2): what a browser is asked, and what its answer must be.

Security: reads what a browser sends. The challenge, the site, the user's presence and verification, the signature and
the counter are all checked; anything else is one and the same refusal.
"""

import json

from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import parse_authentication_credential_json
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from mailwarden.access.factor_store import MAX_PASSKEYS, NewPasskey, Passkey
from mailwarden.access.one_time_codes import ISSUER
from mailwarden.access.place import Place
from mailwarden.errors import LoginFailed, SchemaViolation

TIMEOUT_MS = 120_000
MAX_ANSWER = 16_384
MAX_NAME = 60


def ask_for_new(place: Place, handle: bytes, name: str, challenge: bytes, known: list[bytes]) -> str:
    """Return, as JSON, what a browser needs to make a passkey that lives in the authenticator."""
    _check_site(place)
    if len(known) >= MAX_PASSKEYS:
        raise SchemaViolation(f"A person has at most {MAX_PASSKEYS} passkeys.")
    options = generate_registration_options(
        rp_id=place.host,
        rp_name=ISSUER,
        user_id=handle,
        user_name=name,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        exclude_credentials=[PublicKeyCredentialDescriptor(id=credential) for credential in known],
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
    )
    return options_to_json(options)


def read_new(place: Place, answer: str, challenge: bytes | None, name: str) -> NewPasskey:
    """Return the passkey that the browser made, or raise LoginFailed."""
    _check_answer(answer, challenge)
    assert challenge is not None
    try:
        made = verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=place.host,
            expected_origin=place.site,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _refused() from None
    return NewPasskey(made.credential_id, made.credential_public_key, made.sign_count, checked_passkey_name(name))


def ask_for_known(place: Place, challenge: bytes) -> str:
    """Return, as JSON, what a browser needs to log in with any passkey it has for this site."""
    _check_site(place)
    options = generate_authentication_options(
        rp_id=place.host,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return options_to_json(options)


def credential_in(answer: str) -> bytes:
    """Return which passkey a browser used; nothing of it is believed yet."""
    if len(answer) > MAX_ANSWER:
        raise _refused()
    try:
        return parse_authentication_credential_json(answer).raw_id
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _refused() from None


def read_known(place: Place, answer: str, challenge: bytes | None, passkey: Passkey) -> int:
    """Return the passkey's new counter where the answer proves it, or raise LoginFailed."""
    _check_answer(answer, challenge)
    assert challenge is not None
    try:
        proven = verify_authentication_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=place.host,
            expected_origin=place.site,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise _refused() from None
    return proven.new_sign_count


def checked_passkey_name(text: str) -> str:
    name = " ".join(text.split())[:MAX_NAME]
    return name if name.isprintable() and name else "Passkey"


def _check_site(place: Place) -> None:
    if not place.takes_passkeys:
        raise SchemaViolation("Browsers make passkeys for a host name, not for an address: open this site by its name.")


def _check_answer(answer: str, challenge: bytes | None) -> None:
    if challenge is None or len(answer) > MAX_ANSWER:
        raise _refused()
    try:
        if not isinstance(json.loads(answer), dict):
            raise _refused()
    except ValueError:
        raise _refused() from None


def _refused() -> LoginFailed:
    return LoginFailed("This passkey was not accepted; try again.")
