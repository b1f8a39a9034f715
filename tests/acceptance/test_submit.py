"""submitEmail as the specification has it: one message in, six fields out."""

import hashlib
import json
import re
import subprocess
from datetime import datetime
from uuid import UUID

import pytest
import requests

from tests.acceptance.client import ENVELOPE, SUBMIT, Part, email, envelope, parameters
from workshop.rig.samples import malware_message, plain_message, spam_message

DECISIONS = {"undecided", "deliver", "quarantine", "bounce", "drop"}
VERDICTS = {"malware", "phishing", "fraud", "spoof", "blocked", "spam", "suspicious", "bulk", "clean", "unknown"}
MOMENT = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
TAG = re.compile(r"^(threat|auth|sender|url|file|content|engine|list|policy|analysis|flow)\.[a-z0-9]+(-[a-z0-9]+)*$")


@pytest.mark.spec("1 synchronous")
@pytest.mark.spec("1 result")
@pytest.mark.spec("4 submitEmail 200")
@pytest.mark.spec("4 submitEmail multipart")
@pytest.mark.contract("3 six fields")
@pytest.mark.contract("2 clean")
def test_a_plain_message_is_answered_with_exactly_six_fields_and_is_clean(client, plain):
    answer = client.submit(plain)

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert set(answer.json) == {"ggrid", "created", "completed", "decision", "verdict", "tags"}
    assert answer.outcome == ("clean", "deliver")


@pytest.mark.contract("2 malware")
def test_the_antivirus_test_file_is_malware_and_quarantined(client, engines):
    answer = client.submit(engines.dns.sign(malware_message(), "pass.example"))

    assert answer.outcome == ("malware", "quarantine")
    assert "threat.malware" in answer.result["tags"]


@pytest.mark.contract("2 spam")
def test_the_spam_test_text_is_spam_and_quarantined(client, engines):
    answer = client.submit(engines.dns.sign(spam_message(), "pass.example"))

    assert answer.outcome == ("spam", "quarantine")


@pytest.mark.spec("2 ggrid")
def test_every_analysis_has_a_uuid_of_its_own(client, plain):
    first, second = (client.submit(plain).result["ggrid"] for _ in range(2))

    assert str(UUID(first)) == first
    assert str(UUID(second)) == second
    assert first != second


@pytest.mark.spec("2 created")
@pytest.mark.spec("2 completed")
@pytest.mark.contract("3 times")
def test_created_is_not_after_completed_and_both_are_utc_with_z(client, plain):
    result = client.submit(plain).result

    assert MOMENT.match(result["created"])
    assert MOMENT.match(result["completed"])
    assert datetime.fromisoformat(result["created"]) <= datetime.fromisoformat(result["completed"])


@pytest.mark.spec("2 decision")
@pytest.mark.spec("2 verdict")
@pytest.mark.spec("2 tags")
@pytest.mark.contract("2 tags")
@pytest.mark.contract("7 closed sets")
@pytest.mark.parametrize("make", [plain_message, spam_message, malware_message])
def test_decision_verdict_and_tags_are_words_of_their_sets_and_tags_are_sorted_and_unique(client, make):
    result = client.submit(make()).result

    assert result["decision"] in DECISIONS
    assert result["verdict"] in VERDICTS
    assert result["tags"], "even a plain message carries tags of its authentication"
    assert all(TAG.match(tag) for tag in result["tags"])
    assert result["tags"] == sorted(set(result["tags"]))


@pytest.mark.contract("2 tags")
@pytest.mark.contract("2 catalogue")
def test_every_tag_of_an_answer_is_in_the_catalogue_that_is_served(client, engines):
    catalogue = client.call("GET", "/v1/catalogue")

    assert catalogue.status == 200
    known = {entry["tag"] for entry in catalogue.json["tags"]}
    for make in (plain_message, spam_message, malware_message):
        assert set(client.submit(make()).result["tags"]) <= known
    assert {entry["verdict"] for entry in catalogue.json["verdicts"]} == VERDICTS


@pytest.mark.contract("2 drop")
def test_drop_is_no_default_of_any_verdict(client):
    verdicts = {
        entry["verdict"]: entry["decisions"].values() for entry in client.call("GET", "/v1/catalogue").json["verdicts"]
    }

    assert set(verdicts) == VERDICTS
    assert [verdict for verdict, decisions in verdicts.items() if not decisions or "drop" in decisions] == []


@pytest.mark.contract("3 part order")
def test_the_parts_may_come_in_either_order(client, plain):
    assert client.send(parameters(), email(plain)).outcome == ("clean", "deliver")
    assert client.send(email(plain), parameters()).outcome == ("clean", "deliver")


@pytest.mark.spec("4 submitEmail email")
@pytest.mark.contract("3 byte for byte")
@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"", id="ends as it came"),
        pytest.param(b"\r\n\r\n\r\n", id="empty lines at the end"),
        pytest.param(b"no line end", id="no line end"),
        pytest.param(b"bare\nline\rends\r\n", id="bare line ends"),
        pytest.param(bytes(range(256)), id="every byte"),
        pytest.param(b"\r\n--acceptance-4f1d2", id="almost the boundary"),
        pytest.param(b"x" * 1_500_000, id="larger than memory keeps"),
    ],
)
def test_the_message_arrives_byte_for_byte(client, plain, tail):
    message = plain + tail

    kept = client.explained(client.submit(message).result["ggrid"])["message"]

    assert kept["size"] == len(message)
    assert kept["sha256"] == hashlib.sha256(message).hexdigest()


@pytest.mark.spec("2 borderMtaData")
@pytest.mark.spec("2 envelopeFrom")
@pytest.mark.spec("2 envelopeRecipients")
@pytest.mark.spec("2 remoteAddress")
@pytest.mark.spec("2 senderHelo")
def test_the_envelope_is_remembered_as_it_was_given(client, plain):
    kept = client.explained(client.submit(plain).result["ggrid"])["envelope"]

    assert kept == ENVELOPE


@pytest.mark.spec("2 remoteAddress")
@pytest.mark.spec("2 senderHelo")
def test_remote_address_and_helo_may_be_left_out(client, plain):
    assert client.submit(plain, envelope(remoteAddress=None, senderHelo=None)).status == 200


@pytest.mark.contract("3 null sender")
@pytest.mark.parametrize("sender", ["", "<>"])
def test_the_null_sender_is_accepted_in_both_spellings(client, plain, sender):
    answer = client.submit(plain, envelope(envelopeFrom=sender))

    assert client.explained(answer.result["ggrid"])["envelope"]["envelopeFrom"] == ""


@pytest.mark.contract("3 smtputf8")
def test_addresses_beyond_ascii_are_accepted(client, plain):
    answer = client.submit(
        plain, envelope(envelopeFrom="jürgen@pass.example", envelopeRecipients=["käthe@bücher.example"])
    )

    kept = client.explained(answer.result["ggrid"])["envelope"]
    assert (kept["envelopeFrom"], kept["envelopeRecipients"]) == ("jürgen@pass.example", ["käthe@bücher.example"])


@pytest.mark.contract("3 remoteAddress")
@pytest.mark.parametrize("address", ["2001:db8::25", "::ffff:192.0.2.10", "203.0.113.5"])
def test_addresses_of_both_families_are_accepted(client, plain, address):
    assert client.submit(plain, envelope(remoteAddress=address)).status == 200


@pytest.mark.contract("3 recipients")
def test_a_thousand_recipients_pass(client, plain):
    many = [f"person{number}@company.example" for number in range(1_000)]

    assert client.submit(plain, envelope(envelopeRecipients=many)).status == 200


@pytest.mark.spec("4 base")
def test_without_tls_nothing_is_answered(client):
    plain_url = client.url.replace("https://", "http://")

    with pytest.raises(requests.RequestException):
        requests.get(f"{plain_url}/healthz", timeout=5)


@pytest.mark.spec("9 version")
@pytest.mark.contract("7 version header")
def test_every_answer_under_v1_has_the_api_version(client, plain):
    for answer in (client.submit(plain), client.call("POST", "/v1/admin/status"), client.using(None).submit(plain)):
        assert answer.headers["X-API-Version"] == "1.1.0"


@pytest.mark.contract("5 body")
def test_a_request_id_is_always_answered_and_a_usable_one_of_the_caller_is_kept(client, plain):
    assert client.submit(plain, headers={"X-Request-Id": "order-66.a_b"}).headers["X-Request-Id"] == "order-66.a_b"
    assert client.submit(plain).headers["X-Request-Id"]
    assert client.submit(plain, headers={"X-Request-Id": "two words"}).headers["X-Request-Id"] != "two words"
    assert client.using(None).call("POST", SUBMIT).headers["X-Request-Id"]


@pytest.mark.spec("4 submitEmail parameters")
@pytest.mark.contract("3 explicit json")
@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_the_parameters_part_accepts_any_spelling_of_json(client, plain, kind):
    assert client.send(parameters(content_type=kind), email(plain)).status == 200


def test_the_email_part_may_have_any_type_and_no_file_name(client, plain):
    for part in (Part("email", plain), Part("email", plain, "application/octet-stream"), Part("email", plain, "x/y")):
        assert client.send(parameters(), part).outcome == ("clean", "deliver")


@pytest.mark.spec("4 submitEmail multipart")
def test_curl_submits_a_message_as_the_quick_start_shows(client, plain, tmp_path):
    (tmp_path / "message.eml").write_bytes(plain)

    done = subprocess.run(
        ["curl", "-sS", "--max-time", "30", "--cacert", str(client.ca), "-H", f"Authorization: Bearer {client.token}",
         "-F", f"parameters={json.dumps({'borderMtaData': ENVELOPE})};type=application/json",
         "-F", f"email=@{tmp_path}/message.eml", client.url + SUBMIT],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert json.loads(done.stdout)["verdict"] == "clean"
