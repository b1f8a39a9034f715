"""Reports: what callers say of messages, and what a tenant's statistics come of it."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.acceptance.client import Answer, Client
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

NOBODY = "00000000-0000-4000-8000-000000000000"
RFC822 = {"Content-Type": "message/rfc822"}


def letter(number: int) -> bytes:
    """Write a message with enough words of its own to be learned from."""
    words = " ".join(f"word{number}{index} about the harvest of {index * 7} apples" for index in range(30))
    head = f"From: dora@orchard.example\r\nTo: eve@club.example\r\nSubject: harvest {number}\r\n"
    return f"{head}Message-ID: <{number}@orchard.example>\r\n\r\n{words}\r\n".encode()


@dataclasses.dataclass(frozen=True)
class Reporter:
    """A caller who reports for one tenant."""

    client: Client
    tenant: str

    def call(self, method: str, path: str, data: bytes | None = None, **query: str) -> Answer:
        headers: Mapping[str, str] = {} if data is None else RFC822
        return self.client.call(method, f"{path}?{urlencode(query)}" if query else path, headers=headers, data=data)

    def report(self, message: bytes, kind: str = "spam") -> Answer:
        return self.call("POST", "/v1/reports", message, kind=kind, tenantUid=self.tenant)

    def report_message(self, ggrid: str, kind: str = "spam", message: bytes | None = None) -> Answer:
        return self.call("POST", f"/v1/messages/{ggrid}/report", message, kind=kind)

    def reports(self, **query: str) -> list[dict[str, Any]]:
        answer = self.call("GET", "/v1/reports", None, tenantUid=self.tenant, **query)
        assert answer.status == 200, answer.body
        return list(answer.json["reports"])

    def take_back(self, uid: str) -> Answer:
        return self.call("DELETE", f"/v1/reports/{uid}")

    def training(self) -> dict[str, Any]:
        answer = self.call("GET", "/v1/training", tenantUid=self.tenant)
        assert answer.status == 200, answer.body
        return dict(answer.json)

    def reset(self) -> Answer:
        return self.call("DELETE", "/v1/training", tenantUid=self.tenant)


@pytest.fixture
def club(deployment) -> Iterator[Reporter]:
    reporter = Reporter(deployment.client("club"), deployment.tenants["club"])
    yield reporter
    reporter.reset()


@pytest.fixture
def acme(deployment) -> Reporter:
    return Reporter(deployment.client("acme"), deployment.tenants["acme"])


@pytest.fixture
def scanned(club):
    """Return a message of the tenant club, and its ggrid."""
    message = plain_message()
    return message, str(club.client.submit(message, tenant=club.tenant).result["ggrid"])


@pytest.mark.contract("3 report")
@pytest.mark.contract("3 training")
def test_a_message_that_comes_with_its_report_is_learned_within_seconds(club):
    answer = club.report(letter(1), "phishing")

    assert answer.status == 202
    report = answer.json
    assert set(report) == {
        "uid", "tenantUid", "kind", "state", "ggrid", "subject", "size", "reportedBy", "reportedAt",
    }  # fmt: skip
    assert (report["kind"], report["state"], report["ggrid"]) == ("phishing", "waiting", None)
    assert (report["tenantUid"], report["size"]) == (club.tenant, len(letter(1)))
    assert report["reportedBy"] == "token:club"
    assert report["reportedAt"].endswith("Z")

    assert wait_until(lambda: club.reports()[0]["state"] == "trained", pause=0.25)
    assert club.training() == {
        "tenantUid": club.tenant, "threats": 1, "good": 0, "waiting": 0, "required": 200, "active": False,
        "rebuilding": False,
    }  # fmt: skip


@pytest.mark.contract("3 report")
def test_a_scanned_message_is_reported_by_its_ggrid_with_or_without_its_bytes(club, scanned):
    message, ggrid = scanned

    without = club.report_message(ggrid, "good")
    assert (without.status, without.json["state"], without.json["ggrid"]) == (202, "not-stored", ggrid)
    assert without.json["subject"]

    given = club.report_message(ggrid, "good", message)
    assert (given.status, given.json["state"], given.json["size"]) == (202, "waiting", len(message))


@pytest.mark.contract("5 message_mismatch")
def test_other_bytes_than_those_of_the_message_are_refused(club, scanned):
    _, ggrid = scanned
    answer = club.report_message(ggrid, "spam", letter(2))

    assert (answer.status, answer.error) == (409, "message_mismatch")
    assert club.reports() == []


@pytest.mark.contract("3 report kinds")
@pytest.mark.contract("5 schema_violation")
@pytest.mark.parametrize("query", ["kind=released", "kind=", "", "kind=spam&kind=good", "kind=spam&knid=good"])
def test_an_invalid_query_is_rejected(club, scanned, query):
    answer = club.client.call("POST", f"/v1/messages/{scanned[1]}/report?{query}")

    assert (answer.status, answer.error) == (400, "schema_violation")


@pytest.mark.contract("3 report replaced")
def test_a_second_report_of_a_message_replaces_the_first(club):
    first = club.report(letter(3), "spam").json["uid"]
    second = club.report(letter(3), "good").json["uid"]

    assert [(report["uid"], report["kind"]) for report in club.reports()] == [(second, "good")]
    assert club.take_back(first).error == "report_not_found"


@pytest.mark.contract("3 report taken back")
@pytest.mark.contract("5 report_not_found")
def test_a_report_is_taken_back_once(club):
    uid = club.report(letter(4)).json["uid"]

    gone = club.take_back(uid)
    assert (gone.status, gone.body) == (204, b"")
    assert club.reports() == []
    again = club.take_back(uid)
    assert (again.status, again.error) == (404, "report_not_found")
    assert club.take_back("17").body == again.body


@pytest.mark.contract("3 report taken back")
def test_relearning_leaves_out_withdrawn_reports(club):
    uids = [club.report(letter(number)).json["uid"] for number in (5, 6)]
    assert wait_until(lambda: club.training()["threats"] == 2, pause=0.25)

    assert club.take_back(uids[0]).status == 204

    assert wait_until(lambda: not club.training()["rebuilding"], pause=0.25)
    assert club.training()["threats"] == 1


@pytest.mark.contract("3 training reset")
def test_a_reset_deletes_all_reports_and_counts_them(club):
    for number in (7, 8, 9):
        assert club.report(letter(number)).status == 202

    answer = club.reset()

    assert (answer.status, answer.json) == (200, {"deleted": 3})
    assert club.reports() == []
    assert club.training()["waiting"] == 0


@pytest.mark.contract("3 report")
def test_reports_come_in_pages_the_newest_first(club):
    uids = [club.report(letter(number)).json["uid"] for number in range(10, 15)]

    first = club.reports(limit="3")
    second = club.reports(limit="3", before=first[-1]["reportedAt"])

    assert [report["uid"] for report in (*first, *second)] == uids[::-1]


@pytest.mark.contract("3 report too large")
def test_a_message_too_large_to_be_learned_from_is_noted(club):
    large = letter(16) + b"x" * 1_048_576
    answer = club.report(large)

    assert (answer.status, answer.json["state"], answer.json["size"]) == (202, "not-stored", len(large))


@pytest.mark.contract("3 report too large")
@pytest.mark.contract("5 payload_too_large")
def test_a_body_over_50_mib_is_refused_before_it_is_read(club):
    head = [f"POST /v1/reports?kind=spam&tenantUid={club.tenant} HTTP/1.1", "Host: abby", "Content-Length: 52428801"]

    answer = club.client.say([*head, f"Authorization: Bearer {club.client.token}"])

    assert (answer.status, answer.error) == (413, "payload_too_large")


@pytest.mark.contract("5 unsupported_media_type")
def test_a_body_needs_the_message_content_type(club, scanned):
    path = f"/v1/messages/{scanned[1]}/report?kind=spam"
    for kind in ("text/plain", "application/json"):
        answer = club.client.call("POST", path, headers={"Content-Type": kind}, data=scanned[0])
        assert (answer.status, answer.error) == (415, "unsupported_media_type")
    assert club.client.call("POST", path, data=scanned[0]).error == "unsupported_media_type"


@pytest.mark.contract("5 empty_email")
def test_an_empty_message_is_refused(club, scanned):
    for path in (f"/v1/reports?kind=spam&tenantUid={club.tenant}", f"/v1/messages/{scanned[1]}/report?kind=spam"):
        answer = club.client.call("POST", path, headers=RFC822, data=b"")
        assert (answer.status, answer.error) == (400, "empty_email")


@pytest.mark.contract("3 report permission")
@pytest.mark.contract("5 forbidden")
def test_reports_need_their_own_permission(deployment, club, scanned):
    stranger = dataclasses.replace(club, client=deployment.client("reader"))
    answers = [
        stranger.report(letter(17)),
        stranger.report_message(scanned[1]),
        stranger.take_back(NOBODY),
        stranger.reset(),
        stranger.call("GET", "/v1/reports", tenantUid=club.tenant),
        stranger.call("GET", "/v1/training", tenantUid=club.tenant),
    ]

    assert {(answer.status, answer.error) for answer in answers} == {(403, "forbidden")}
    allowed = dataclasses.replace(club, client=deployment.client("reporter"))
    assert allowed.report(letter(17)).status == 202


@pytest.mark.contract("3 report walls")
@pytest.mark.contract("5 tenant_forbidden")
def test_a_tenant_reaches_nothing_that_another_reported(club, acme, scanned):
    _, ggrid = scanned
    uid = club.report(letter(18)).json["uid"]

    foreign, unknown = acme.report_message(ggrid), acme.report_message("01900000-0000-7000-8000-000000000000")
    assert (foreign.status, foreign.error, foreign.body) == (404, "message_not_found", unknown.body)
    assert (acme.take_back(uid).status, acme.take_back(uid).body) == (404, acme.take_back(NOBODY).body)
    for tenant in (club.tenant, NOBODY):
        there = dataclasses.replace(acme, tenant=tenant)
        answers = [
            there.report(letter(19)),
            there.reset(),
            there.call("GET", "/v1/reports", tenantUid=tenant),
            there.call("GET", "/v1/training", tenantUid=tenant),
        ]
        assert {(answer.status, answer.error) for answer in answers} == {(403, "tenant_forbidden")}
    assert [report["uid"] for report in club.reports()] == [uid]
    assert uid not in {report["uid"] for report in acme.reports()}


@pytest.mark.contract("4 audit")
def test_reports_and_withdrawals_are_audited(deployment, engines, club):
    uid = club.report(letter(21)).json["uid"]
    club.take_back(uid)

    deeds = engines.postgresql.execute(
        f"SELECT actor, action FROM audit WHERE details->>'uid' = '{uid}' ORDER BY number", deployment.database
    )
    assert deeds.split() == ["token:club|training.report", "token:club|training.withdraw"]
