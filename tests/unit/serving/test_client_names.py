"""Names of client certificates: subjectAltName alone, without case, without wildcards."""

import pytest
import structlog

from mailwarden.errors import Forbidden
from mailwarden.serving.tls import LOG_AGAIN_SECONDS, ClientNames, name_mistakes

CLIENTS = ClientNames(["abby.example", "192.0.2.7", "2001:db8::1"], "tls.clientNames")


def certificate(*alternatives: tuple[str, str], common: str = "abby.example") -> dict[str, object]:
    return {"subject": ((("commonName", common),),), "subjectAltName": alternatives}


@pytest.mark.parametrize(
    "alternatives",
    [
        [("DNS", "abby.example")],
        [("DNS", "ABBY.Example")],
        [("DNS", "abby.example.")],
        [("DNS", "other.example"), ("DNS", "abby.example")],
        [("IP Address", "192.0.2.7")],
        [("IP Address", "2001:DB8:0:0:0:0:0:1")],
    ],
)
def test_a_configured_name_is_admitted(alternatives):
    CLIENTS.require(certificate(*alternatives), None)


@pytest.mark.parametrize(
    "alternatives",
    [
        [],
        [("DNS", "other.example")],
        [("DNS", "*.example")],
        [("DNS", "abby.example.evil.example")],
        [("DNS", "xabby.example")],
        [("DNS", "abby.example\0.evil.example")],
        [("DNS", "")],
        [("email", "abby.example")],
        [("URI", "abby.example")],
        [("DirName", ((("commonName", "abby.example"),),))],
        [("IP Address", "192.0.2.70")],
        [("IP Address", "<invalid>")],
    ],
)
def test_any_other_certificate_is_rejected(alternatives):
    with pytest.raises(Forbidden, match=r"no name of tls\.clientNames"):
        CLIENTS.require(certificate(*alternatives), "192.0.2.1")


def test_a_certificate_that_was_admitted_admits_no_other():
    clients = ClientNames(["abby.example"], "tls.clientNames")
    for _ in range(2):
        clients.require(certificate(("DNS", "abby.example"), ("DNS", "other.example")), None)
        with pytest.raises(Forbidden):
            clients.require(certificate(("DNS", "other.example")), None)
        with pytest.raises(Forbidden):
            clients.require(certificate(("DNS", "abby.example, other.example")), None)


@pytest.mark.parametrize("nothing", [None, {}, {"subjectAltName": None}])
def test_no_certificate_is_rejected(nothing):
    with pytest.raises(Forbidden):
        CLIENTS.require(nothing, None)


def test_a_wildcard_in_the_configuration_is_a_mistake():
    assert [key for key, _ in name_mistakes("clientNames", ["*.example", "", "a b", "abby.example", "::1"])] == [
        "clientNames"
    ] * 3


def test_a_rejected_client_is_logged_once_a_minute():
    times = iter((0.0, 1.0, LOG_AGAIN_SECONDS + 1))
    clients = ClientNames(["abby.example"], "tls.clientNames", lambda: next(times))
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(Forbidden):
                clients.require(certificate(("DNS", "other.example")), None)
    assert [(line["event"], line["names"]) for line in lines] == [
        ("client_certificate_rejected", ["other.example"])
    ] * 2
