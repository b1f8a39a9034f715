"""The logs of abby and guard: JSON lines that name the work they speak of, and nothing private."""

import json

import pytest

from tests.acceptance.client import STATUS, email, parameters
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

SUBJECT = "Quarterly figures of the violet project"


def lines(service) -> list[dict[str, object]]:
    return [json.loads(line) for line in service.log.read_text("utf-8").splitlines()]


def test_the_lines_of_one_submission_carry_its_ggrid_and_its_request_id_in_both_processes(restartable):
    answer = restartable.client().submit(plain_message(), headers={"X-Request-Id": "logged-call-1"})

    def speaking(service) -> list[dict[str, object]]:
        return [line for line in lines(service) if line.get("ggrid") == answer.result["ggrid"]]

    abby, *guards = restartable.product.services
    assert wait_until(lambda: speaking(abby) and any(speaking(guard) for guard in guards))
    for line in (*speaking(abby), *(line for guard in guards for line in speaking(guard))):
        assert line["request_id"] == "logged-call-1"
        assert {"event", "level", "timestamp", "program"} <= set(line)


def test_a_call_over_the_same_connection_does_not_inherit_the_ggrid_of_the_one_before(deployment):
    client = deployment.client()
    with client.connection() as connection:
        ggrid = client.call_over(
            connection, "POST", "/v1/messageQueue/submitEmail", parameters(), email(plain_message())
        ).result["ggrid"]
        client.call_over(connection, "GET", "/v1/nothing")

    abby = deployment.product.abby
    assert wait_until(lambda: any(line.get("status") == 404 for line in lines(abby)[-20:]))
    last = [line for line in lines(abby) if line.get("status") == 404][-1]
    assert last.get("ggrid") != ggrid


@pytest.mark.contract("3 token secrecy")
def test_no_line_carries_a_subject_an_address_or_a_token(restartable):
    client = restartable.client()
    message = plain_message("violet@pass.example", SUBJECT)
    client.submit(message)
    client.submit(message[:200] + b"\0" * 10)
    client.using("violet-token-that-nobody-knows-0123456789").call("POST", STATUS)

    for service in restartable.product.services:
        text = service.log.read_text("utf-8")
        for private in (SUBJECT, "violet", "pass.example", "company.example", *restartable.tokens.values()):
            assert private not in text, f"{service.name} logs {private}"


def test_every_line_is_json(restartable):
    for service in restartable.product.services:
        assert lines(service)
