"""The List API on wrong requests, under too many, and with the database away."""

import json

import pytest

from tests.acceptance.deployment import run_deployment
from tests.acceptance.list_client import PREFIX, modified
from tests.waiting import wait_until

CATALOGUE = [
    ("sender-block", "Block", 100_000, 1_000_000),
    ("sender-allow", "Allow", 100_000, 100_000),
    ("ip-block", "Block", 100_000, 1_000_000),
    ("ip-allow", "Allow", 10_000, 10_000),
    ("url-block", "Block", 100_000, 10_000_000),
    ("url-allow", "Allow", 100_000, 100_000),
    ("file-hash-block", "Block", 100_000, 10_000_000),
    ("file-hash-allow", "Allow", 100_000, 100_000),
    ("attachment-block", "Block", 1_000, 1_000),
    ("subject-block", "Block", 1_000, 1_000),
    ("recipient-exempt", "Exempt", 10_000, 1_000),
    ("simulation-senders", "Exempt", 1_000, 1_000),
    ("protected-people", "Impersonation", 10_000, 1_000),
    ("protected-domains", "Impersonation", 10_000, 10_000),
    ("lookalike-ignore", "Impersonation", 10_000, 10_000),
    ("trusted-relays", "Trust", 1_000, 1_000),
]
NAMED = ["addEntries", "deleteEntries", "listEntries"]
EVERY = [*NAMED, "getLists"]
FOUR_MIB = 4 * 1024 * 1024


@pytest.mark.spec("2 lists")
@pytest.mark.spec("4 getLists")
@pytest.mark.contract("4 catalogue")
@pytest.mark.parametrize("tenant", [None, "acme"])
def test_get_lists_shows_the_same_catalogue_in_every_scope(deployment, tenant):
    answer = deployment.lists("all", tenant).available()

    assert answer.status == 200
    assert set(answer.json) == {"listFileInfos"}
    infos = answer.json["listFileInfos"]
    for info in infos:
        assert set(info) == {"listName", "listInfo"}
        assert set(info["listInfo"]) == {"displayName", "category", "description", "maxSize"}
        assert info["listInfo"]["displayName"]
        assert info["listInfo"]["description"]
    found = [(info["listName"], info["listInfo"]["category"], info["listInfo"]["maxSize"]) for info in infos]
    assert found == [(name, category, g if tenant is None else t) for name, category, t, g in CATALOGUE]


@pytest.mark.contract("4 listName")
@pytest.mark.contract("5 list_not_found")
@pytest.mark.parametrize("operation", NAMED)
def test_a_list_that_does_not_exist_is_not_found(deployment, operation):
    entries: dict[str, object] = {} if operation == "listEntries" else {"entries": []}
    body = {"listName": "no-such-list", **entries}
    answer = deployment.lists().call(operation, body)
    assert (answer.status, answer.error) == (404, "list_not_found")

    for name in ("Sender-block", "sender--block", "-x", "sender_block", "", "../x"):
        assert deployment.lists().call(operation, {**body, "listName": name}).error == "schema_violation"


@pytest.mark.contract("4 no fallback")
@pytest.mark.parametrize("operation", EVERY)
def test_a_tenant_in_the_query_does_not_mean_the_global_scope(deployment, operation):
    answer = deployment.lists().call(f"{operation}?tenantUid={deployment.tenants['acme']}", {})

    assert (answer.status, answer.error) == (400, "schema_violation")
    assert answer.json["details"][0]["pointer"] == "/tenantUid"


@pytest.mark.contract("4 required")
@pytest.mark.contract("5 schema_violation")
@pytest.mark.parametrize(
    ("operation", "body", "pointer"),
    [
        ("addEntries", {"listName": "sender-block"}, ""),
        ("addEntries", {"entries": []}, ""),
        ("addEntries", {"listName": "sender-block", "entries": [{}]}, "/entries/0"),
        ("addEntries", {"listName": "sender-block", "entries": ["a.example"]}, "/entries/0"),
        ("addEntries", {"listName": "sender-block", "entries": [{"entry": "a", "coment": ""}]}, "/entries/0"),
        ("addEntries", {"listName": 7, "entries": []}, "/listName"),
        ("addEntries", {"listName": "sender-block", "entries": [], "tenantUID": None}, ""),
        ("deleteEntries", {"listName": "sender-block"}, ""),
        ("deleteEntries", {"entries": []}, ""),
        ("deleteEntries", {"listName": "sender-block", "entries": [{"entry": "a.example"}]}, "/entries/0"),
        ("listEntries", {}, ""),
        ("listEntries", {"listName": "sender-block", "limit": 1}, ""),
        ("getLists", {"listName": "sender-block"}, ""),
    ],
)
def test_missing_unknown_and_wrong_fields_are_reported_with_their_place(deployment, operation, body, pointer):
    answer = deployment.lists().call(operation, body)

    assert (answer.status, answer.error) == (400, "schema_violation")
    assert answer.json["details"][0]["pointer"] == pointer


@pytest.mark.contract("5 invalid_json")
@pytest.mark.parametrize("operation", EVERY)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b'{"tenantUid":NaN}', b"\xff\xfe", b'{"tenantUid":null,"tenantUid":null}']
)
def test_a_body_that_is_no_json_object_is_rejected(deployment, operation, body):
    answer = deployment.lists().call(operation, body)

    assert (answer.status, answer.error) == (400, "invalid_json")


@pytest.mark.spec("8 entries")
@pytest.mark.contract("5 too_many_entries")
def test_500_entries_pass_and_501_do_not(deployment):
    lists = deployment.lists("all", "bank")
    names = [f"n{n}.example" for n in range(501)]

    for answer in (lists.add("sender-block", *names), lists.delete("sender-block", *names)):
        assert (answer.status, answer.error) == (400, "too_many_entries")
    assert modified(lists.add("sender-block", *names[:500])) == 500
    assert modified(lists.delete("sender-block", *names[:500])) == 500


@pytest.mark.contract("4 body limit")
@pytest.mark.contract("5 payload_too_large")
def test_four_mib_pass_and_one_byte_more_does_not(deployment):
    lists = deployment.lists()
    body = b'{"listName":"sender-block","entries":[]}'

    assert modified(lists.call("addEntries", body + b" " * (FOUR_MIB - len(body)))) == 0
    answer = lists.call("addEntries", body + b" " * (FOUR_MIB - len(body) + 1))
    assert (answer.status, answer.error) == (413, "payload_too_large")
    chunked = lists.client.call(
        "POST", f"{PREFIX}/addEntries",
        headers={"Authorization": f"apikey {lists.key}", "Content-Type": "application/json"},
        data=iter([body, *[b" " * 65_536] * 70]),
    )  # fmt: skip
    assert chunked.error == "payload_too_large"


@pytest.mark.contract("5 order")
def test_the_first_error_is_reported_first(deployment):
    lists, tenant = deployment.lists("acme"), deployment.tenants["club"]
    head = [f"POST {PREFIX}/addEntries HTTP/1.1", "Host: abby", "Content-Type: text/plain"]
    authorized = [*head, f"Authorization: apikey {lists.key}"]
    plain = lists.client
    assert plain.say([*head, "Content-Length: 99999999"]).error == "unauthenticated"
    assert plain.say([*authorized, f"Content-Length: {FOUR_MIB + 1}"]).error == "payload_too_large"
    assert plain.say([*authorized, "Content-Length: 10"]).error == "unsupported_media_type"

    def asked(**changes: object) -> str:
        body = {"listName": "no-such-list", "entries": [{"entry": "@"}], "tenantUid": tenant, **changes}
        return str(lists.call("addEntries", body).error)

    assert asked(entries=7) == "schema_violation"
    assert asked(entries=[{"entry": "@"}] * 501) == "too_many_entries"
    assert asked() == "tenant_forbidden"
    assert asked(tenantUid=deployment.tenants["acme"]) == "list_not_found"
    assert asked(tenantUid=deployment.tenants["acme"], listName="sender-block") == "invalid_entry"


@pytest.mark.contract("5 body")
@pytest.mark.contract("4 rate limit")
def test_every_answer_has_the_rate_limit_headers(deployment):
    lists = deployment.lists()
    for answer in (
        lists.available(), lists.stream("sender-block"), lists.stream("no-such-list"), lists.call("getLists", b"x"),
        deployment.lists("reader").add("sender-block"),
    ):  # fmt: skip
        assert answer.headers["X-Request-Id"]
        assert answer.headers["RateLimit-Policy"] == '"key";q=1000000;w=60'
        assert answer.headers["RateLimit"].startswith('"key";r=9')


@pytest.mark.slow
@pytest.mark.contract("4 rate limit")
@pytest.mark.contract("5 rate_limited")
def test_a_key_beyond_its_rate_gets_retry_after(engines, deployment_template, tmp_path):
    with run_deployment(engines, deployment_template, tmp_path, abby={"listsRateLimit": 3}, start=False) as deployment:
        deployment.product.abby.start()
        lists = deployment.lists()
        assert [lists.available().headers["RateLimit"].split(";")[1] for _ in range(3)] == ["r=2", "r=1", "r=0"]

        answer = lists.available()

        assert (answer.status, answer.error) == (429, "rate_limited")
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.headers["RateLimit"].startswith('"key";r=0;t=')
        assert deployment.lists("reader").available().status == 200


@pytest.mark.slow
@pytest.mark.contract("5 storage_unavailable")
@pytest.mark.contract("6 list writes")
def test_while_the_database_is_down_every_call_gets_503(deployment, stoppable_engines):
    lists = deployment.lists("all", "bank")
    assert modified(lists.add("url-block", "evil.example")) == 1

    stoppable_engines.postgresql.kill()

    for answer in (
        lists.add("url-block", "b.example"),
        lists.delete("url-block", "b.example"),
        lists.stream("url-block"),
    ):
        assert (answer.status, answer.error) == (503, "storage_unavailable")
        assert int(answer.headers["Retry-After"]) >= 1
    stoppable_engines.postgresql.start()
    assert wait_until(lambda: lists.stream("url-block").status == 200)
    assert [json.loads(line)["entry"] for line in lists.stream("url-block").body.splitlines()] == ["evil.example"]
