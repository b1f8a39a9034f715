"""Static tokens: who is let in, and what each may do."""

import hashlib
from uuid import UUID

import pytest

from mailwarden.access.api_tokens import StaticApiToken
from mailwarden.access.callers import Access, api_key, bearer_token, is_api_key
from mailwarden.access.keys import ApiKeys, KeyStore
from mailwarden.access.permissions import DEFAULT_PERMISSIONS, TOKEN_PERMISSIONS, ApiPermission, KeyScope
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import InvalidCredentials, Unauthenticated

PLAIN, HASHED = "p" * 64, "h" * 64
TENANT = UUID("0192f0c1-0000-7000-8000-000000000001")
# Nothing here asks the database: texts that are not API keys are rejected before.
KEYS = ApiKeys(KeyStore(Database("postgresql://nowhere.invalid/none")), KeyRing.of(b"p" * 32))
ACCESS = Access(
    [
        StaticApiToken("plain", PLAIN),
        StaticApiToken(
            "hashed",
            "sha256:" + hashlib.sha256(HASHED.encode()).hexdigest(),
            ("messageQueue.read", f"tenant:{TENANT}"),
        ),
        StaticApiToken("all", "a" * 64, ("*",)),
    ],
    KEYS,
)


def test_the_star_is_every_permission_that_a_token_can_have():
    caller = ACCESS.authenticate([f"BEARER {'a' * 64}"])
    assert set(ApiPermission) - caller.permissions == {ApiPermission.LISTS_READ, ApiPermission.LISTS_WRITE}


def test_a_token_has_the_permissions_that_it_names_or_the_default_ones():
    assert ACCESS.authenticate([f"Bearer {HASHED}"]).permissions == {ApiPermission.READ}
    assert ACCESS.authenticate([f"Bearer {PLAIN}"]).permissions == {ApiPermission.SUBMIT, ApiPermission.STATUS}


def test_a_token_that_names_only_a_tenant_has_no_permission():
    access = Access([StaticApiToken("bound", PLAIN, (f"tenant:{TENANT}",))], KEYS)
    assert access.authenticate([f"Bearer {PLAIN}"]).permissions == set()


def test_every_scope_of_a_key_is_one_permission():
    scopes = [permission.scope for permission in ApiPermission if permission.scope is not None]
    assert sorted(scopes) == sorted(KeyScope)
    assert len(set(TOKEN_PERMISSIONS)) == len(TOKEN_PERMISSIONS)
    assert set(DEFAULT_PERMISSIONS) < set(TOKEN_PERMISSIONS)


@pytest.mark.parametrize(
    "headers",
    [[], [""], ["Bearer"], ["Bearer "], ["Basic abc"], [PLAIN], ["Bearer a b"], [f"Bearer {PLAIN}", f"Bearer {PLAIN}"]],
)
def test_a_missing_or_malformed_header_is_unauthenticated(headers):
    with pytest.raises(Unauthenticated):
        ACCESS.authenticate(headers)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        f"Bearer {PLAIN}x",
        f"Bearer {PLAIN[:-1]}",
        "Bearer sha256:" + hashlib.sha256(HASHED.encode()).hexdigest(),
        "Bearer \udcff\udcfe",
        f"apikey {PLAIN}",
    ],
)
def test_an_unknown_token_and_an_api_key_are_invalid(header):
    with pytest.raises(InvalidCredentials):
        ACCESS.authenticate([header])


def test_without_tokens_every_call_is_rejected():
    with pytest.raises(InvalidCredentials):
        Access([], KEYS).authenticate([f"Bearer {PLAIN}"])


def test_the_token_is_taken_without_the_spaces_around_it():
    assert bearer_token(["Bearer   abc "]) == "abc"


@pytest.mark.parametrize("header", ["apikey k", "APIKEY k", "apikey  k "])
def test_an_api_key_is_read_from_its_header(header):
    assert api_key([header]) == "k"


@pytest.mark.parametrize(
    "headers", [[], ["apikey"], ["apikey "], ["apikey a b"], ["Basic a"], ["apikey a", "apikey a"]]
)
def test_a_missing_api_key_is_answered_with_the_scheme(headers):
    with pytest.raises(Unauthenticated) as caught:
        api_key(headers)
    assert caught.value.scheme == "apikey"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [(["APIKEY k"], True), (["Bearer k"], False), ([], False), (["apikey a", "apikey a"], False)],
)
def test_an_api_key_is_recognised_by_its_scheme(headers, expected):
    assert is_api_key(headers) is expected
