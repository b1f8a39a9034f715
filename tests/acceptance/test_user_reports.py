"""A report mailbox behind Postfix: a report becomes a case, is not delivered, and is answered when the case closes."""

import asyncio
from email import message_from_bytes, policy
from uuid import UUID, uuid4

import pytest

from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope
from mailwarden.user_reports.cases.model import Case, CaseReport
from mailwarden.user_reports.cases.store import CaseStore
from tests.acceptance.deployment import run_command
from tests.acceptance.postfix_deployment import REPORT_ADDRESS, PostfixDeployment
from tests.acceptance.smtp import ggrid_in, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ANN, BOB = "ann@company.example", "bob@company.example"
OUTSIDE = "192.0.2.10"
COMPANY = "192.0.2.200"


def message_of(mark: str, sender: str = "alice@pass.example", *, body: str = "") -> bytes:
    head = f"From: {sender}\r\nTo: {ANN}\r\nSubject: Parcel {mark}\r\nMessage-ID: <{mark}@pass.example>\r\n"
    date = "Date: Tue, 17 Nov 2026 09:00:00 +0000\r\nMIME-Version: 1.0\r\n"
    return f"{head}{date}\r\n{body or f'The parcel of order {mark} waits at the counter until Friday.'}\r\n".encode()


def report_of(original: bytes, sender: str = ANN) -> bytes:
    head = f"From: {sender}\r\nTo: {REPORT_ADDRESS}\r\nSubject: Fwd\r\nMessage-ID: <{uuid4().hex}@company.example>\r\n"
    more = 'Date: Tue, 17 Nov 2026 09:30:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="e"'
    part = b"--e\r\nContent-Type: message/rfc822\r\n\r\n" + original + b"\r\n--e--\r\n"
    return f"{head}{more}\r\n\r\n".encode() + part


async def _cases(mta: PostfixDeployment, engines) -> tuple[list[Case], dict[UUID, list[CaseReport]], list[CaseReport]]:
    database = Database(engines.postgresql.url(mta.deployment.database))
    try:
        store, scope = CaseStore(database), Scope.of(UUID(mta.deployment.tenants["acme"]))
        cases = list(await store.page(scope))
        reports = {each.uid: list(await store.reports(scope, each.uid)) for each in cases}
        return cases, reports, list(await store.unverified(scope))
    finally:
        await database.close()


def test_a_report_becomes_a_case_and_is_answered(mta: PostfixDeployment, engines):
    mark = uuid4().hex
    reply = send(mta.before.port, message_of(mark), ANN)
    (delivered,) = mta.sink.take()
    found = mta.deployment.client().explained(ggrid_in(reply))
    assert found["ggrid"] == str(ggrid_in(reply))

    signed = engines.dns.sign(report_of(delivered.content), "company.example")
    assert send(mta.before.port, signed, REPORT_ADDRESS, sender=ANN, address=COMPANY).startswith("250")
    assert send(mta.before.port, signed, REPORT_ADDRESS, BOB, sender=ANN, address=COMPANY).startswith("250")
    (copy,) = mta.sink.take()
    assert copy.recipients == (BOB,)

    [case], reports, unverified = asyncio.run(_cases(mta, engines))
    [report] = reports[case.uid]
    assert (str(report.ggrid), report.reporter, unverified) == (found["ggrid"], ANN, [])

    forged = report_of(delivered.content, sender=BOB)  # neither SPF nor DKIM speaks for it
    assert send(mta.after.port, forged, REPORT_ADDRESS, sender="eve@pass.example", address=OUTSIDE).startswith("250")
    assert wait_until(lambda: len(asyncio.run(_cases(mta, engines))[2]) == 1)
    [case], reports, [unverified_report] = asyncio.run(_cases(mta, engines))
    assert (case.reports, unverified_report.reporter) == (1, BOB)

    assert mta.sink.empty
    config = ("--config", str(mta.deployment.product.abby.folder))
    listed = run_command("cases", "list", "--tenant", "acme", "--state", "open", *config)
    assert str(case.uid) in listed
    assert found["ggrid"] in run_command("cases", "show", str(case.uid), *config)
    assert "is closed as malicious" in run_command("cases", "close", str(case.uid), "--outcome", "malicious", *config)
    (answer,) = mta.sink.take()
    assert (answer.sender, answer.recipients) == ("<>", (ANN,))
    mail = message_from_bytes(answer.content, policy=policy.default)
    assert (mail["Auto-Submitted"], mail["From"].addresses[0].addr_spec) == ("auto-replied", "reports@company.example")
    text = mail.get_content()
    assert "is malicious" in text
    assert f"Parcel {mark}" in text
