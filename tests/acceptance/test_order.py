"""What is wrong first is said first: a caller without a credential learns nothing and costs nothing."""

import pytest

from tests.acceptance.client import FORM, SUBMIT, envelope
from workshop.rig.samples import plain_message

pytestmark = [pytest.mark.contract("5 order")]

MESSAGE = plain_message()
NOBODY = "00000000-0000-4000-8000-000000000000"


def test_an_unknown_path_comes_before_the_credential(client):
    assert client.using(None).call("POST", "/v1/nothing").error == "not_found"


def test_a_wrong_method_comes_before_the_credential(client):
    assert client.using(None).call("GET", SUBMIT).error == "method_not_allowed"


def test_without_a_credential_a_huge_body_is_refused_before_a_byte_of_it_is_sent(client):
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", "Content-Length: 99999999999", f"Content-Type: {FORM}"]

    assert client.say(head).error == "unauthenticated"


def test_the_credential_comes_before_the_media_type_and_the_shape(client):
    answer = client.using(None).call("POST", SUBMIT, headers={"Content-Type": "text/plain"}, data=b"x")

    assert answer.error == "unauthenticated"


def test_a_missing_permission_is_reported_before_the_body(deployment):
    client = deployment.client("reader")
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", "Content-Length: 1000000", f"Content-Type: {FORM}"]

    answer = client.say([*head, f"Authorization: Bearer {client.token}"])

    assert answer.error == "forbidden"


def test_the_size_comes_before_the_media_type(client):
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", "Content-Length: 52428801", "Content-Type: text/plain"]

    answer = client.say([*head, f"Authorization: Bearer {client.token}"])

    assert answer.error == "payload_too_large"


def test_the_media_type_comes_before_the_shape(client):
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", "Content-Length: 1000", "Content-Type: text/plain"]

    answer = client.say([*head, f"Authorization: Bearer {client.token}"])

    assert answer.error == "unsupported_media_type"


def test_the_shape_comes_before_the_scope(deployment):
    record = {**envelope(envelopeRecipients=[]), "tenantUid": deployment.tenants["club"]}

    assert deployment.client("acme").submit(MESSAGE, record).error == "schema_violation"


def test_the_scope_comes_before_existence(deployment):
    assert deployment.client("acme").submit(MESSAGE, tenant=NOBODY).error == "tenant_forbidden"
    assert deployment.client().submit(MESSAGE, tenant=NOBODY).error == "tenant_not_found"


def test_existence_comes_before_meaning(deployment):
    client, key = deployment.client(), {"Idempotency-Key": "order-of-checks"}
    client.submit(MESSAGE, headers=key)

    assert client.submit(MESSAGE + b"more", tenant=NOBODY, headers=key).error == "tenant_not_found"
