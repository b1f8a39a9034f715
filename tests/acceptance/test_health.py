"""Liveness, readiness and metrics: for machines that watch, telling nothing more than asked."""

import pytest

from tests.waiting import wait_until

NOBODY_KNOWS = ("guard", "127.0.0.1", "version", "postgres")


@pytest.mark.contract("3 healthz")
@pytest.mark.contract("3 readyz")
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_credentials_and_reveals_nothing_else(client, path):
    # abby has just started: it may not know a usable guard yet.
    assert wait_until(lambda: client.using(None).call("GET", path).status == 200)
    answer = client.using(None).call("GET", path)
    assert len(answer.body) < 16
    assert not [word for word in NOBODY_KNOWS if word in answer.body.decode().lower()]


@pytest.mark.contract("3 healthz")
def test_health_does_not_look_at_credentials_at_all(client):
    assert client.using("wrong").call("GET", "/healthz").status == 200


def test_metrics_are_in_the_form_that_prometheus_reads(deployment, plain):
    deployment.client().submit(plain)

    answer = deployment.client("meter").call("GET", "/metrics")

    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert 'route="/v1/messageQueue/submitEmail",status="200"' in answer.body.decode()
