"""Static tokens: who may call, and what each permission gives."""

import hashlib

import pytest

from tests.acceptance.client import STATUS, SUBMIT, Client
from workshop.rig.samples import plain_message

MESSAGE = plain_message()


def allowed(client: Client) -> set[str]:
    """Try all that a token can be for, and return what it was let do."""
    tries = {
        "submit": client.submit(MESSAGE).status,
        "read": client.call("GET", "/v1/messages/00000000-0000-4000-8000-000000000000").status,
        "status": client.call("POST", STATUS).status,
        "metrics": client.call("GET", "/metrics").status,
    }
    assert set(tries.values()) <= {200, 403, 404}
    return {name for name, status in tries.items() if status != 403}


@pytest.mark.spec("5 staticApiTokens")
@pytest.mark.spec("5 permissions")
@pytest.mark.contract("3 default permissions")
@pytest.mark.contract("3 exact permissions")
@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("plain", {"submit", "status"}),
        ("empty", {"submit", "status"}),
        ("submitter", {"submit"}),
        ("reader", {"read"}),
        ("watcher", {"status"}),
        ("meter", {"metrics"}),
        ("acme", {"submit", "read"}),
        ("everything", {"submit", "read", "status", "metrics"}),
    ],
)
def test_a_token_has_exactly_its_permissions(deployment, token, expected):
    assert allowed(deployment.client(token)) == expected


@pytest.mark.spec("5 bearer")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(deployment, scheme):
    client = deployment.client().using(None)

    answer = client.call("POST", STATUS, headers={"Authorization": f"{scheme} {deployment.tokens['everything']}"})

    assert answer.status == 200


@pytest.mark.contract("5 invalid_credentials")
def test_a_token_that_is_almost_right_is_wrong(deployment):
    token = deployment.tokens["everything"]

    for almost in (token[:-1], token + "0", token.upper(), "sha256:" + token, token[::-1]):
        assert deployment.client().using(almost).call("POST", STATUS).error == "invalid_credentials"


@pytest.mark.contract("5 invalid_credentials")
def test_the_digest_of_a_token_is_no_token(deployment):
    digest = hashlib.sha256(deployment.tokens["everything"].encode()).hexdigest()

    assert deployment.client().using(digest).call("POST", STATUS).error == "invalid_credentials"


@pytest.mark.spec("5 keys")
@pytest.mark.contract("5 invalid_credentials")
def test_an_api_key_does_not_apply_even_where_it_is_a_token(deployment):
    client = deployment.client().using(None)

    answer = client.call("POST", STATUS, headers={"Authorization": f"apikey {deployment.tokens['everything']}"})

    assert (answer.status, answer.error) == (401, "invalid_credentials")


@pytest.mark.contract("3 token secrecy")
def test_no_token_stands_in_an_answer_or_in_a_log(deployment):
    for token in deployment.tokens.values():
        answer = deployment.client().using(token).call("POST", SUBMIT)
        assert token.encode() not in answer.body
    unknown = "f00d" * 16
    deployment.client().using(unknown).call("POST", STATUS)

    for service in deployment.product.services:
        text = service.log.read_text("utf-8")
        assert unknown not in text
        assert not [name for name, token in deployment.tokens.items() if token in text]
