"""Static tokens: who may call, and what each permission gives."""

import hashlib

import pytest

from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.access.permissions import ApiPermission
from tests.acceptance.client import STATUS, SUBMIT

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.spec("5 staticApiTokens")
@pytest.mark.spec("5 permissions")
@pytest.mark.contract("3 default permissions")
@pytest.mark.contract("3 exact permissions")
@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("plain", {ApiPermission.SUBMIT, ApiPermission.STATUS}),
        ("empty", {ApiPermission.SUBMIT, ApiPermission.STATUS}),
        ("submitter", {ApiPermission.SUBMIT}),
        ("reader", {ApiPermission.READ}),
        ("watcher", {ApiPermission.STATUS}),
        ("meter", {ApiPermission.METRICS}),
        ("acme", {ApiPermission.SUBMIT, ApiPermission.READ, ApiPermission.REPORT}),
        ("releaser", {ApiPermission.HELD, ApiPermission.RELEASE}),
        ("everything", set(ApiPermission)),
    ],
)
def test_a_token_has_exactly_its_permissions(deployment, token, expected):
    client = deployment.client(token)
    for each in ENDPOINTS:
        if each.takes_token:
            answer = client.call(each.method, each.path.replace("{ggrid}", NOBODY).replace("{uid}", NOBODY))
            assert (answer.status == 403) is (each.permission not in expected), each.name


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
