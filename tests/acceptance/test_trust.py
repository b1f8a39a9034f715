"""Trust between processes: guard answers to configured names alone, and abby's public certificate is its own."""

import asyncio
import http.client
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.cli.certificates import make_certificates
from mailwarden.cli.doctor import check_host
from mailwarden.cli.doctor.host import check_certificates, check_trust
from mailwarden.cli.doctor.servers import check_processes
from mailwarden.serving.tls import ABBY_NAME
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.waiting import wait_until
from workshop.rig.certificates import sign
from workshop.rig.engines import Engines

pytestmark = pytest.mark.slow

PATHS = (
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("GET", "/v1/guard/status"),
    ("GET", "/v1/guard/configuration"),
    ("POST", "/v1/messageQueue/submitEmail"),
    ("GET", "/nothing-here"),
    ("DELETE", "/healthz"),
)


@pytest.fixture(scope="module")
def built(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("trust")
    with run_deployment(engines, deployment_template, folder, one_process=False) as opened:
        yield opened


@pytest.fixture
def trusting(built: Deployment) -> Deployment:
    built.product.start()
    return built


def tls_of(deployment: Deployment) -> Path:
    return deployment.product.abby.folder / "tls"


def ask(deployment: Deployment, certificate: tuple[str, str] | None, method: str, path: str) -> tuple[int, bytes]:
    """Ask guard on its own port with this certificate."""
    context = ssl.create_default_context(cafile=tls_of(deployment) / "ca.crt")
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", deployment.product.guards[0].port, timeout=20, context=context
    )
    try:
        connection.request(method, path, body=b"x" * 10 if method == "POST" else None)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("names", "common"), [(["soar.example"], "abby"), ([], ABBY_NAME), (["*.mailwarden.internal"], ABBY_NAME)]
)
def test_guard_rejects_other_names_of_its_authority(trusting: Deployment, tmp_path: Path, names, common):
    certificate = sign(tls_of(trusting), tmp_path / "other", names, common=common)
    for method, path in PATHS:
        status, body = ask(trusting, certificate, method, path)
        assert (status, b'"error":"forbidden"' in body) == (403, True), (method, path)
    assert b"no name of tls.clientNames" in body
    assert "client_certificate_rejected" in trusting.product.guards[0].log.read_text("utf-8")


def test_guard_rejects_its_own_certificate_and_none_at_all(trusting: Deployment, tmp_path: Path):
    own = (str(tls_of(trusting) / "guard.crt"), str(tls_of(trusting) / "guard.key"))
    make_certificates(tmp_path, ["localhost"])
    foreign = (str(tmp_path / "abby.crt"), str(tmp_path / "abby.key"))
    for certificate in (own, None, foreign):
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(trusting, certificate, "GET", "/healthz")


def test_a_configured_name_is_admitted_everywhere(trusting: Deployment, tmp_path: Path):
    certificate = sign(tls_of(trusting), tmp_path / "abby", [ABBY_NAME.upper()])
    assert ask(trusting, certificate, "GET", "/healthz")[0] == 200
    assert ask(trusting, certificate, "GET", "/metrics")[0] == 200


def test_abby_and_the_doctor_name_the_rejection(trusting: Deployment, plain: bytes):
    guard, abby = trusting.product.guards[0], trusting.product.abby
    own = (str(tls_of(trusting) / "abby.crt"), str(tls_of(trusting) / "abby.key"))
    guard.configure({"tls": {"clientNames": ["soar.example"]}})
    guard.stop()
    guard.launch()  # it never gets ready for the rig, which shows abby's certificate
    try:
        assert wait_until(lambda: status_of(trusting, own) == 403)
        answer = trusting.client().submit(plain)
        assert (answer.status, answer.error) == (502, "core_error")
        assert "tls.clientNames in guard.yml" in answer.json["message"]
        assert wait_until(lambda: "guard_rejected_certificate" in abby.log.read_text("utf-8"))
        lines = asyncio.run(doctor_lines(abby.folder))
        assert "guard rejects the name in abby's certificate" in lines[f"guard 127.0.0.1:{guard.port}"]
    finally:
        guard.stop()
        guard.configure({"tls": {"clientNames": [ABBY_NAME]}})
        guard.start()
    assert wait_until(lambda: trusting.client().submit(plain).status == 200)


def test_the_public_certificate_is_another_and_is_reloaded(trusting: Deployment, plain: bytes, tmp_path: Path):
    """abby shows callers the public certificate, guards the internal one, and takes up a renewed one at SIGHUP."""
    abby, public = trusting.product.abby, tmp_path / "public"
    make_certificates(public, ["mail.example"])
    make_certificates(tmp_path / "next", ["mail.example"])
    abby.configure({"publicTls": {"certificate": str(public / "abby.crt"), "key": str(public / "abby.key")}})
    abby.stop()
    try:
        abby.launch()
        assert wait_until(lambda: shows(abby.port, public / "ca.crt"))
        assert not shows(abby.port, tls_of(trusting) / "ca.crt"), "the internal certificate is for guards"
        lines = asyncio.run(doctor_lines(abby.folder))
        assert wait_until(lambda: "ready at" in asyncio.run(doctor_lines(abby.folder))["abby"]), lines["abby"]
        assert lines["certificate public"].startswith("valid for")

        for name in ("abby.crt", "abby.key"):
            (public / name).write_bytes((tmp_path / "next" / name).read_bytes())
        assert "another certificate" in asyncio.run(doctor_lines(abby.folder, remedies=True))["abby"]
        os.kill(abby.pid, signal.SIGHUP)
        assert wait_until(lambda: shows(abby.port, tmp_path / "next" / "ca.crt"))

        (public / "abby.key").write_bytes((tls_of(trusting) / "abby.key").read_bytes())
        os.kill(abby.pid, signal.SIGHUP)
        assert wait_until(lambda: "certificate_not_reloaded" in abby.log.read_text("utf-8"))
        assert shows(abby.port, tmp_path / "next" / "ca.crt"), "a broken pair leaves the old one in use"
    finally:
        abby.stop()
        path = abby.folder / "abby" / "abby" / "abby.yml"
        path.write_text(path.read_text("utf-8").partition("publicTls:\n")[0])
        abby.start()
    assert wait_until(lambda: trusting.client().submit(plain).status == 200)


@pytest.mark.parametrize("seconds", [31_536_000, 0])
def test_every_answer_of_abby_has_hsts(trusting: Deployment, seconds: int):
    abby = trusting.product.abby
    if seconds == 0:
        abby.configure({"hstsMaxAge": 0})
        abby.restart()
    client = trusting.client()
    answers = [
        client.call(method, path)
        for method, path in (
            ("GET", "/healthz"),
            ("GET", "/console/login"),
            ("GET", "/nothing"),
            ("POST", "/v1/admin/status"),
            ("POST", "/v1/messageQueue/submitEmail"),
        )
    ]
    answers.append(trusting.lists().stream("sender-block"))
    assert {answer.headers["Strict-Transport-Security"] for answer in answers} == {f"max-age={seconds}"}
    assert len({answer.status for answer in answers}) > 2
    assert b"strict-transport-security" in raw_answer(trusting, b"no request\r\n\r\n").lower()


def raw_answer(deployment: Deployment, sent: bytes) -> bytes:
    context = ssl.create_default_context(cafile=tls_of(deployment) / "ca.crt")
    with (
        socket.create_connection(("127.0.0.1", deployment.product.abby.port), timeout=20) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(sent)
        return b"".join(iter(lambda: secured.recv(65_536), b""))


def status_of(deployment: Deployment, certificate: tuple[str, str]) -> int:
    try:
        return ask(deployment, certificate, "GET", "/healthz")[0]
    except OSError:
        return 0


def shows(port: int, ca: Path) -> bool:
    """Tell whether the listener shows a certificate of this authority for mail.example."""
    context = ssl.create_default_context(cafile=ca)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
            context.wrap_socket(connection, server_hostname="mail.example"),
        ):
            return True
    except OSError:
        return False


async def doctor_lines(folder: Path, *, remedies: bool = False) -> dict[str, str]:
    checks = (check_certificates, check_trust, check_processes)  # all of them take half a minute
    return {line.name: line.remedy if remedies else line.seen async for line in check_host(folder, checks)}
