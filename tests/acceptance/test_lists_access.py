"""Who may use the List API: keys, their scopes and tenants, their networks and their end."""

import json
import time

import pytest

from mailwarden.lists.api import ENDPOINTS
from tests.acceptance.deployment import run_command
from tests.acceptance.list_client import modified
from tests.waiting import wait_until

# The smallest body of each call.
OPERATIONS: dict[str, dict[str, object]] = {
    each.name: {name: [] if name == "entries" else value for name, value in each.example.items()} for each in ENDPOINTS
}
NOBODY = "00000000-0000-4000-8000-000000000000"


def keys(deployment, *words: str) -> str:
    return run_command("keys", *words, "--config", str(deployment.product.abby.folder))


def make_key(deployment, *words: str) -> dict[str, str]:
    made = keys(deployment, "create", "made", "--scope", "lists:read", *words, "-o", "json")
    return dict(json.loads(made))


@pytest.mark.spec("5 apikey")
@pytest.mark.spec("9 lists")
@pytest.mark.contract("4 apikey")
@pytest.mark.parametrize("scheme", ["apikey", "ApiKey", "APIKEY"])
def test_the_key_travels_in_the_header_authorization(deployment, scheme):
    client = deployment.lists().using(None)

    answer = client.call("getLists", {}, {"Authorization": f"{scheme} {deployment.keys['all']}"})

    assert answer.status == 200


@pytest.mark.contract("5 unauthenticated")
@pytest.mark.parametrize("header", [None, "apikey", "apikey ", "Basic YTpi", "apikey a b", ""])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_a_key_nothing_is_answered(deployment, operation, header):
    given = {} if header is None else {"Authorization": header}

    answer = deployment.lists().using(None).call(operation, b"nonsense", given)

    assert (answer.status, answer.error) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("apikey ")
    assert answer.headers["X-Request-Id"]
    assert "RateLimit" not in answer.headers


@pytest.mark.contract("5 invalid_credentials")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_token_is_no_key(deployment, operation):
    token = deployment.tokens["everything"]

    for header in (f"Bearer {token}", f"apikey {token}"):
        answer = deployment.lists().using(None).call(operation, OPERATIONS[operation], {"Authorization": header})
        assert (answer.status, answer.error) == (401, "invalid_credentials")


@pytest.mark.spec("1 lists")
@pytest.mark.contract("4 scope")
@pytest.mark.contract("4 key bound")
def test_tenants_and_the_global_scope_have_lists_of_their_own(deployment):
    acme, club, everywhere = deployment.lists("acme", "acme"), deployment.lists("all", "club"), deployment.lists("all")
    name = "protected-domains"
    assert modified(acme.add(name, "acme.example")) == 1
    assert modified(club.add(name, "club.example")) == 1
    assert modified(everywhere.add(name, "global.example")) == 1

    assert acme.names(name) == ["acme.example"]
    assert club.names(name) == ["club.example"]
    assert everywhere.names(name) == ["global.example"]
    body = {"listName": name, "tenantUid": None}
    assert json.loads(everywhere.call("listEntries", body).body)["entry"] == "global.example"
    assert modified(acme.delete(name, "club.example", "global.example")) == 0
    assert deployment.lists("both", "acme").names(name) == ["acme.example"]
    assert deployment.lists("both", "club").names(name) == ["club.example"]


@pytest.mark.contract("4 no fallback")
@pytest.mark.contract("5 global_scope_forbidden")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("scope", [{}, {"tenantUid": None}])
def test_a_tenant_key_does_not_reach_the_global_scope(deployment, operation, scope):
    answer = deployment.lists("acme").call(operation, {**OPERATIONS[operation], **scope})

    assert (answer.status, answer.error) == (403, "global_scope_forbidden")


@pytest.mark.contract("5 tenant_forbidden")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_another_tenant_is_answered_like_one_that_does_not_exist(deployment, operation):
    lists = deployment.lists("acme")
    answers = [
        lists.call(operation, {**OPERATIONS[operation], "tenantUid": uid})
        for uid in (deployment.tenants["club"], NOBODY)
    ]

    assert [(answer.status, answer.error) for answer in answers] == [(403, "tenant_forbidden")] * 2
    assert answers[0].json == answers[1].json


@pytest.mark.contract("4 scope")
def test_a_tenant_has_its_lists_as_soon_as_it_is_made(deployment):
    made = run_command("tenants", "create", "late", "-o", "json", "--config", str(deployment.product.abby.folder))
    uid = json.loads(made)["tenantUid"]

    assert deployment.lists().call("getLists", {"tenantUid": uid}).status == 200


@pytest.mark.contract("4 key revoked")
@pytest.mark.contract("5 invalid_credentials")
def test_a_revoked_key_is_refused_within_five_seconds(deployment):
    made = make_key(deployment, "--global")
    lists = deployment.lists().using(made["key"])
    assert lists.available().status == 200

    keys(deployment, "revoke", made["id"])

    began = time.monotonic()
    assert wait_until(lambda: lists.available().status == 401)
    assert time.monotonic() - began < 5.0
    assert lists.available().error == "invalid_credentials"


@pytest.mark.contract("4 key expiry")
def test_an_expired_key_is_refused(deployment, engines):
    made = make_key(deployment, "--global", "--expires", "1d")
    engines.postgresql.execute(
        f"UPDATE api_keys SET expires = now() WHERE key_id = '{made['id']}'", deployment.database
    )

    assert deployment.lists().using(made["key"]).available().error == "invalid_credentials"


@pytest.mark.contract("4 key networks")
def test_a_key_is_refused_from_outside_its_networks(deployment):
    inside = make_key(deployment, "--global", "--network", "127.0.0.0/8", "--network", "2001:db8::/32")
    outside = make_key(deployment, "--global", "--network", "192.0.2.0/24")

    assert deployment.lists().using(inside["key"]).available().status == 200
    assert deployment.lists().using(outside["key"]).available().error == "invalid_credentials"


@pytest.mark.contract("4 key stored")
@pytest.mark.contract("4 key last used")
def test_a_key_is_shown_once_and_stored_hashed_and_its_last_use_is_known(deployment, engines):
    made = make_key(deployment, "--tenant", deployment.tenants["acme"])
    lists = deployment.lists(tenant="acme").using(made["key"])
    assert lists.available().status == 200

    listed = {row["id"]: row for row in json.loads(keys(deployment, "ls", "-o", "json"))}[made["id"]]

    assert "key" not in listed
    assert listed["lastUsed"]
    assert listed["tenants"] == [deployment.tenants["acme"]]
    secret = made["key"].rpartition("_")[2]
    stored = engines.postgresql.execute("SELECT api_keys::text FROM api_keys", deployment.database)
    assert secret not in stored
    assert secret not in deployment.product.abby.log.read_text("utf-8")


@pytest.mark.contract("4 audit")
def test_list_changes_are_audited_with_their_actor(deployment, engines):
    answer = deployment.lists("acme", "acme").call(
        "addEntries",
        {"listName": "trusted-relays", "entries": [{"entry": "192.0.2.77"}], "tenantUid": deployment.tenants["acme"]},
        {"X-Request-Id": "audited-call"},
    )
    assert modified(answer) == 1

    row = engines.postgresql.execute(
        "SELECT actor, tenant, action, subject, host(source_address), details->>'added' FROM audit"
        " WHERE request_id = 'audited-call'",
        deployment.database,
    )

    assert row == f"key:acme|{deployment.tenants['acme']}|lists.add|trusted-relays|127.0.0.1|1"
