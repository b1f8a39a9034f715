"""A flood of reports of one person changes no verdict, decision or score of the messages that they name."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.client import Client
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.acceptance.smtp import Sink, send
from tests.samples import report_mails as mails
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.samples import malware_message, plain_message, spam_message

pytestmark = pytest.mark.slow
REPORTS = 1_000 if os.environ.get("MAILWARDEN_FULL") == "1" else 60
ANN, MAILBOX = "ann@company.example", "phishing@company.example"
ENVELOPE = {
    "envelopeFrom": "alice@pass.example",
    "envelopeRecipients": [ANN],
    "remoteAddress": "192.0.2.10",
    "senderHelo": "mail.pass.example",
}
ACTIONS = (3, 1, 2)  # phishing, junk, not junk


@pytest.fixture(scope="module")
def flooded(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, int]]:
    """A deployment that takes a thousand reports of one person, and the port of its guard."""
    port = free_port()
    with Sink() as sink:
        smtp = {"mode": "afterQueue", "listen": {"port": port}, "nextHop": f"127.0.0.1:{sink.port}"}
        reports = {"addresses": {MAILBOX: "phishing"}, "sender": "reports@company.example", "perReporter": 1_000}
        guard = {"scanSources": {"smtp": smtp, "restApi": {}}, "reports": reports}
        folder = tmp_path_factory.mktemp("flooded")
        with run_deployment(engines, deployment_template, folder, guards=(guard,)) as deployment:
            yield deployment, port


def samples() -> list[bytes]:
    """Return messages of all kinds; the senders are no colleagues, so that each verdict rests on the content."""
    lure = (
        f"From: Parcel Service <service@parcel.example>\r\nTo: {ANN}\r\nSubject: Your parcel waits\r\n"
        "Message-ID: <lure@parcel.example>\r\nDate: Tue, 17 Nov 2026 09:00:00 +0000\r\n\r\n"
        "Your account will be suspended. Please verify your password at http://parcel-fee.example/login today.\r\n"
    ).encode()
    return [plain_message(), plain_message(subject="Invoice of October"), lure, spam_message(), malware_message()]


def judged(client: Client, tenant: str, message: bytes) -> dict[str, Any]:
    """Return verdict, decision, tags, and the rules with their weights, without what names the single scan."""
    answer = client.submit(message, {"borderMtaData": ENVELOPE}, tenant=tenant)
    explained = client.explained(str(answer.result["ggrid"]))
    shown = {name: answer.result[name] for name in ("verdict", "decision", "tags")}
    return {**shown, "reasons": explained["reasons"], "summary": explained["summary"]}


def test_reports_of_one_person_change_no_verdict(flooded: tuple[Deployment, int], engines: Engines):
    deployment, port = flooded
    client, tenant = deployment.client(), deployment.tenants["acme"]
    messages = samples()
    for message in messages:  # the sender history learns of the senders by the first scans
        judged(client, tenant, message)
    before = [judged(client, tenant, message) for message in messages]
    assert len({each["verdict"] for each in before}) >= 3

    for number in range(REPORTS):
        original = messages[number % len(messages)]
        if number >= 2 * len(messages):  # the same message again adds nothing: each is a variant with its own id
            original = original.replace(b"\r\n\r\n", f"\r\nX-Variant: {uuid4().hex}\r\n\r\n".encode(), 1)
        report = mails.microsoft(original, ACTIONS[number % 3], sender=ANN)
        own = report.replace(mails.MAILBOX.encode(), MAILBOX.encode()).replace(b"report-1@", f"{uuid4().hex}@".encode())
        signed = engines.dns.sign(own, "company.example")
        reply = send(port, signed, MAILBOX, sender=ANN, forward=True)
        assert reply.startswith("250"), reply

    database = deployment.database
    assert engines.postgresql.execute("SELECT count(*) FROM training_reports", database).strip() == "0"
    assert int(engines.postgresql.execute("SELECT count(*) FROM case_reports", database)) >= len(messages)
    assert [judged(client, tenant, message) for message in messages] == before
