"""Webhooks verified by the library of Standard Webhooks."""

from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery.signatures import new_secret, secret_key, signed_headers

BODY = '{"type":"message.held","data":{"subject":"Rechnung überfällig"}}'.encode()


def now() -> int:
    return int(datetime.now(UTC).timestamp())


def test_the_standard_library_accepts_a_webhook() -> None:
    secret = new_secret()
    headers = signed_headers([secret], "0199a3f2-6c1e-7b54-9a11-5d0c7e2f8b10", now(), BODY)
    assert Webhook(secret).verify(BODY, dict(headers))["type"] == "message.held"


def test_both_secrets_verify_during_a_rotation() -> None:
    old, new = new_secret(), new_secret()
    headers = dict(signed_headers([new, old], "id", now(), BODY))
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)


@pytest.mark.parametrize("changed", ["body", "id", "time", "old"])
def test_the_standard_library_rejects_a_changed_webhook(changed: str) -> None:
    secret = new_secret()
    moment = now() - int(timedelta(minutes=10).total_seconds()) if changed == "old" else now()
    headers = dict(signed_headers([secret], "id", moment, BODY))
    body = BODY + b" " if changed == "body" else BODY
    if changed == "id":
        headers["webhook-id"] = "other"
    if changed == "time":
        headers["webhook-timestamp"] = str(moment - 1)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, headers)


def test_two_secrets_differ_and_have_256_bits() -> None:
    one, other = new_secret(), new_secret()
    assert one != other
    assert len(secret_key(one)) == 32


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "AAAA", "whsec_" + "A" * 400, "whsec_ü" * 40])
def test_a_weak_or_malformed_secret_is_rejected(secret: str) -> None:
    with pytest.raises(SchemaViolation, match="whsec_"):
        secret_key(secret)


def test_an_id_with_a_full_stop_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        signed_headers([new_secret()], "a.b", 1, BODY)
