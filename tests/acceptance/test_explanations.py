"""GET /v1/messages/{ggrid}: why a message was judged so, for those who may see it."""

import pytest

from workshop.rig.samples import malware_message

pytestmark = [pytest.mark.contract("3 explanation")]


@pytest.fixture(scope="module")
def malware(client, engines):
    """Return the answer to a message with malware, and its explanation."""
    answer = client.submit(engines.dns.sign(malware_message(), "pass.example"))
    explained = client.explain(answer.result["ggrid"])
    assert explained.status == 200
    return answer.result, explained.json


def test_the_explanation_repeats_the_six_fields(malware):
    result, explanation = malware

    assert {name: explanation[name] for name in result} == result


def test_every_reason_has_its_weight_its_sentence_and_its_place(malware):
    _, explanation = malware

    convicting = [reason for reason in explanation["reasons"] if reason["verdict"] == "malware" and reason["weight"]]
    assert convicting
    assert max(reason["weight"] for reason in convicting) >= 100
    for reason in explanation["reasons"]:
        assert reason["summary"].endswith(".")
        assert isinstance(reason["weight"], int)
        assert isinstance(reason["place"], str)
        assert not reason["tag"] or reason["tag"] in explanation["tags"]
    assert explanation["summary"].startswith("Malware: ")


def test_every_engine_shows_its_status_and_duration(malware):
    _, explanation = malware

    engines = {report["analyzer"]: report for report in explanation["engines"]}
    for name in ("rspamd", "clamav"):
        assert engines[name]["status"] == "finished"
        assert engines[name]["required"] is True
        assert engines[name]["engine"]
    for report in engines.values():
        assert report["milliseconds"] >= 0
        assert report["failure"] == ""


def test_the_decision_trace_leads_to_the_decision(malware):
    _, explanation = malware

    steps = [step["step"] for step in explanation["decisionTrace"]]
    assert steps[0] == "malware floor"
    assert all(step["outcome"] for step in explanation["decisionTrace"])


def test_the_list_entry_that_won_is_named_or_null(malware):
    _, explanation = malware

    assert explanation["listEntry"] is None


def test_the_body_of_the_message_is_not_kept(malware):
    _, explanation = malware

    assert "shared drive" not in str(explanation)


@pytest.mark.slow
@pytest.mark.contract("3 explanation permission")
@pytest.mark.contract("5 message_not_found")
def test_a_message_of_another_tenant_is_like_one_that_does_not_exist(deployment, malware):
    result, _ = malware
    nobody = "01900000-0000-7000-8000-000000000000"

    assert deployment.client("acme").explain(result["ggrid"]).status == 200
    foreign, unknown = deployment.client("club").explain(result["ggrid"]), deployment.client("club").explain(nobody)

    assert (foreign.status, foreign.error) == (404, "message_not_found")
    assert (unknown.status, unknown.body) == (foreign.status, foreign.body)


@pytest.mark.contract("3 explanation permission")
def test_explanations_need_their_own_permission(deployment, malware):
    result, _ = malware

    assert deployment.client("reader").explain(result["ggrid"]).status == 200
    assert deployment.client("plain").explain(result["ggrid"]).error == "forbidden"
