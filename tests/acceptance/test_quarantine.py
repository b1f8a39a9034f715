"""The quarantine: held messages found, released, deleted and taken out, within one's scope."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from mailwarden.model.outcome import Verdict
from tests.acceptance import held
from tests.acceptance.client import Answer, Client
from tests.acceptance.deployment import Deployment
from tests.integration.held_messages import RAW

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def keep(deployment: Deployment) -> Callable[..., str]:
    return partial(held.keep, deployment)


@pytest.fixture
def releaser(deployment: Deployment) -> Client:
    return deployment.client("releaser")


def listed(client: Client, **query: str) -> list[dict[str, Any]]:
    answer = client.call("GET", f"/v1/quarantine?{urlencode(query)}")
    assert answer.status == 200, answer.body
    return list(answer.json["messages"])


def release(client: Client, uid: str, **order: object) -> Answer:
    return client.call("POST", f"/v1/quarantine/{uid}/release", headers=JSON, data=json.dumps(order).encode())


@pytest.mark.contract("3 quarantine")
def test_a_held_message_is_found_shown_and_taken_out(releaser, keep, deployment):
    mark = uuid4().hex
    uid = keep(subject=f"about {mark}", recipients=("ann@acme.example", "bob@acme.example"))
    (found,) = listed(releaser, text=mark, verdict="spam", state="held", recipient="bob@acme.example")
    assert set(found) == {
        "uid", "tenantUid", "ggrid", "verdict", "reason", "sender", "fromAddress", "fromName", "subject", "size",
        "receivedAt", "expiresAt", "stored", "recipients",
    }  # fmt: skip
    assert (found["uid"], found["tenantUid"], found["stored"]) == (uid, deployment.tenants["acme"], True)
    assert found["reason"] == "A sentence."
    assert [each["state"] for each in found["recipients"]] == ["held", "held"]
    assert releaser.call("GET", f"/v1/quarantine/{uid}").json == found

    taken = releaser.call("GET", f"/v1/quarantine/{uid}/message")
    assert (taken.status, taken.body) == (200, RAW)
    assert taken.headers["Content-Disposition"] == f'attachment; filename="{uid}.eml"'
    assert taken.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.contract("3 quarantine")
def test_pages_follow_one_another(releaser, keep):
    mark = uuid4().hex
    uids = [keep(subject=mark) for _ in range(3)]
    first = listed(releaser, text=mark, limit="2")
    assert [each["uid"] for each in first] == uids[:0:-1]
    rest = listed(releaser, text=mark, limit="2", after=first[-1]["uid"])
    assert [each["uid"] for each in rest] == uids[:1]


@pytest.mark.contract("3 quarantine")
@pytest.mark.contract("5 not_releasable")
def test_a_message_is_released_to_one_and_deleted_for_the_other(releaser, keep):
    uid = keep(recipients=("ann@acme.example", "bob@acme.example"))
    answer = release(releaser, uid, recipients=["ANN@acme.example"])
    assert answer.status == 202
    ann, bob = answer.json["recipients"]
    assert (ann["state"], ann["changedBy"], bob["state"]) == ("releasing", "token:releaser", "held")

    gone = releaser.call("DELETE", f"/v1/quarantine/{uid}?recipient=bob@acme.example")
    assert (gone.status, gone.json["recipients"][1]["state"]) == (200, "deleted")
    again = releaser.call("DELETE", f"/v1/quarantine/{uid}?recipient=bob@acme.example")
    assert (again.status, again.error) == (409, "not_releasable")
    assert release(releaser, uid, recipients=["eve@acme.example"]).error == "not_releasable"


@pytest.mark.contract("3 quarantine malware")
def test_malware_is_not_released(releaser, keep):
    uid = keep(verdict=Verdict.MALWARE)
    assert release(releaser, uid).error == "not_releasable"
    assert release(releaser, uid, allow="address").error == "not_releasable"
    assert releaser.call("GET", f"/v1/quarantine/{uid}").json["recipients"][0]["state"] == "held"


@pytest.mark.contract("3 quarantine walls")
def test_messages_of_another_tenant_are_not_found(releaser, keep, deployment):
    uid = keep("club", subject=(mark := uuid4().hex))
    assert listed(releaser, text=mark) == []
    assert listed(releaser, tenantUid=deployment.tenants["club"]) == []
    for foreign in (uid, str(uuid4()), "nothing"):
        for answer in (
            releaser.call("GET", f"/v1/quarantine/{foreign}"),
            releaser.call("GET", f"/v1/quarantine/{foreign}/message"),
            releaser.call("DELETE", f"/v1/quarantine/{foreign}"),
            release(releaser, foreign),
            release(releaser, foreign, allow="address"),
            releaser.call("DELETE", f"/v1/quarantine/{foreign}?block=domain"),
        ):
            assert (answer.status, answer.error) == (404, "message_not_found")
    assert releaser.call("GET", f"/v1/quarantine?after={uid}").status == 404
    assert [each["uid"] for each in listed(deployment.client(), text=mark)] == [uid]


@pytest.mark.contract("3 quarantine permission")
def test_looking_and_doing_are_two_permissions(keep, deployment):
    uid, looker = keep(), deployment.client("looker")
    assert looker.call("GET", f"/v1/quarantine/{uid}").status == 200
    for answer in (
        looker.call("GET", f"/v1/quarantine/{uid}/message"),
        looker.call("DELETE", f"/v1/quarantine/{uid}"),
        release(looker, uid),
        deployment.client("acme").call("GET", "/v1/quarantine"),
        deployment.client("plain").call("GET", "/v1/quarantine"),
    ):
        assert (answer.status, answer.error) == (403, "forbidden")


@pytest.mark.contract("3 quarantine lists")
def test_a_sender_is_allowed_with_a_release_and_blocked_with_a_deletion(releaser, keep, deployment):
    lists = deployment.lists(tenant="acme")
    sender = f"{uuid4().hex}@letters.example"
    assert release(releaser, keep(sender=sender), allow="address").status == 202
    assert sender in [each["entry"] for each in lists.entries("sender-allow")]
    assert releaser.call("DELETE", f"/v1/quarantine/{keep(sender=sender)}?block=domain").status == 200
    assert "letters.example" in [each["entry"] for each in lists.entries("sender-block")]

    uid = keep(sender=sender)
    assert release(releaser, uid, allow="address", globalList=True).error == "global_scope_forbidden"
    public = keep(sender="eve@gmail.com")
    assert release(releaser, public, allow="domain").error == "not_releasable"
    for untouched in (uid, public):
        assert releaser.call("GET", f"/v1/quarantine/{untouched}").json["recipients"][0]["state"] == "held"


@pytest.mark.contract("3 quarantine")
@pytest.mark.parametrize(
    "query", ["state=gone", "verdict=bad", "limit=0", "limit=501", "since=yesterday", "after=x", "unknown=1", "text="]
)
def test_a_query_that_cannot_be_read_is_refused(releaser, query):
    assert releaser.call("GET", f"/v1/quarantine?{query}").error == "schema_violation"


@pytest.mark.contract("5 not_releasable")
@pytest.mark.parametrize("sender", ["{% if hit() %}", ""])
def test_an_invalid_sender_entry_is_reported_and_nothing_is_changed(releaser, keep, sender):
    uid = keep(sender=sender)

    for answer in (
        releaser.call("DELETE", f"/v1/quarantine/{uid}?block=address"),
        release(releaser, uid, allow="address"),
    ):
        assert (answer.status, answer.error) == (409, "not_releasable")
        assert "Repeat without" in answer.json["message"]
    assert releaser.call("GET", f"/v1/quarantine/{uid}").json["recipients"][0]["state"] == "held"


@pytest.mark.contract("5 not_releasable")
def test_without_held_recipients_no_list_entry_is_added(releaser, keep, deployment):
    sender = f"{uuid4().hex}@letters.example"
    uid = keep(sender=sender)
    assert release(releaser, uid, recipients=["eve@acme.example"], allow="address").error == "not_releasable"
    assert releaser.call("DELETE", f"/v1/quarantine/{uid}").status == 200

    for answer in (
        release(releaser, uid, allow="address"),
        releaser.call("DELETE", f"/v1/quarantine/{uid}?block=address"),
    ):
        assert (answer.status, answer.error) == (409, "not_releasable")
    lists = deployment.lists(tenant="acme")
    for name in ("sender-allow", "sender-block"):
        assert sender not in [each["entry"] for each in lists.entries(name)]
