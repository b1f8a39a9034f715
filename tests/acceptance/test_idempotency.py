"""Idempotency-Key: a caller who is unsure asks again and gets the first answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.client import FORM, SUBMIT, email, envelope, form, parameters

pytestmark = [pytest.mark.contract("3 idempotency")]


def test_the_same_key_token_and_body_answer_the_first_result_again(client, plain):
    key = {"Idempotency-Key": "first-of-all"}

    first, second = client.submit(plain, headers=key), client.submit(plain, headers=key)

    assert first.status == 200
    assert second.result == first.result


def test_the_same_key_of_another_token_is_another_key(deployment, plain):
    key = {"Idempotency-Key": "shared-by-two"}

    first, second = (deployment.client(token).submit(plain, headers=key).result for token in ("everything", "plain"))

    assert first["ggrid"] != second["ggrid"]


@pytest.mark.contract("5 idempotency_conflict")
def test_the_same_key_with_another_message_or_another_envelope_is_refused(client, plain):
    key = {"Idempotency-Key": "used-already"}
    client.submit(plain, headers=key)

    for answer in (
        client.submit(plain + b"more\r\n", headers=key),
        client.submit(plain, envelope(senderHelo="other.example"), headers=key),
    ):
        assert (answer.status, answer.error) == (409, "idempotency_conflict")


def test_the_order_of_the_parts_makes_no_other_body(client, plain):
    key = {"Idempotency-Key": "either-order"}

    first = client.send(parameters(), email(plain), headers=key)
    second = client.send(email(plain), parameters(), headers=key)

    assert second.result == first.result


def test_without_a_key_nothing_is_remembered(client, plain):
    assert client.submit(plain).result["ggrid"] != client.submit(plain).result["ggrid"]


def test_calls_at_once_with_one_key_all_get_one_result(client, plain):
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(client.submit, plain, headers={"Idempotency-Key": "at-once"}) for _ in range(4)]

    assert len({call.result().result["ggrid"] for call in calls}) == 1


@pytest.mark.contract("5 schema_violation")
@pytest.mark.parametrize("key", ["", "k" * 256, "two words", "ключ".encode().decode("latin-1")])
def test_a_key_that_is_none_is_refused_and_nothing_is_scanned(client, plain, key):
    answer = client.submit(plain, headers={"Idempotency-Key": key})

    assert (answer.status, answer.error) == (400, "schema_violation")


def test_two_keys_are_none(client, plain):
    body = form(parameters(), email(plain))
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", f"Authorization: Bearer {client.token}", f"Content-Type: {FORM}"]
    keys = ["Idempotency-Key: one-of-two", "Idempotency-Key: two-of-two"]

    answer = client.say([*head, *keys, f"Content-Length: {len(body)}"], body)

    assert (answer.status, answer.error) == (400, "schema_violation")
