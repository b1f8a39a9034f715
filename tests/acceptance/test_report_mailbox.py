"""A report mailbox in Dovecot, polled over IMAP: reports become cases, and an outage delays them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import requests

from mailwarden.cli.doctor.report import Host
from mailwarden.cli.doctor.report_mailboxes import check_report_mailboxes
from mailwarden.database.pool import Database
from mailwarden.guard.config import PATH, GuardConfig
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read
from mailwarden.user_reports.cases.model import CaseReport
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox.report_mail import ReportFormat
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.acceptance.smtp import Sink
from tests.samples import report_mails as mails
from tests.waiting import wait_until
from workshop.rig.certificates import sign
from workshop.rig.dovecot import Dovecot
from workshop.rig.engines import Engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.ports import free_port

pytestmark = pytest.mark.slow
ANN, MAILBOX = "ann@company.example", "phishing@company.example"
SECRET = "imap-secret-of-the-test"
PATIENCE = 60.0


@dataclass(frozen=True)
class PolledDeployment:
    deployment: Deployment
    dovecot: Dovecot
    engines: Engines

    def received(self, mark: str) -> tuple[str, bytes]:
        """Scan a message; return its ggrid in history and its bytes."""
        raw = (
            f"From: alice@pass.example\r\nTo: {ANN}\r\nSubject: Parcel {mark}\r\nMessage-ID: <{mark}@pass.example>\r\n"
            f"Date: Tue, 17 Nov 2026 09:00:00 +0000\r\n\r\nThe parcel of order {mark} waits until Friday.\r\n"
        ).encode()
        client = self.deployment.client()
        answer = client.submit(raw, tenant=self.deployment.tenants["acme"])
        assert answer.status == 200, answer.body
        ggrid = str(answer.result["ggrid"])
        client.explained(ggrid)
        return ggrid, raw

    def deliver(self, report: bytes, *, signed: bool = True) -> None:
        own = report.replace(mails.MAILBOX.encode(), MAILBOX.encode()).replace(b"report-1@", f"{uuid4().hex}@".encode())
        self.dovecot.append(self.engines.dns.sign(own, "company.example") if signed else own)

    def reports(self, *, unverified: bool = False) -> list[CaseReport]:
        return asyncio.run(self._reports(unverified=unverified))

    async def _reports(self, *, unverified: bool) -> list[CaseReport]:
        database = Database(self.engines.postgresql.url(self.deployment.database))
        try:
            store, scope = CaseStore(database), Scope.of(UUID(self.deployment.tenants["acme"]))
            if unverified:
                return list(await store.unverified(scope))
            return [report for case in await store.page(scope) for report in await store.reports(scope, case.uid)]
        finally:
            await database.close()

    def metric(self, name: str, outcome: str) -> float:
        """Return the value over all guards."""
        tls = self.deployment.product.abby.folder / "tls"
        found = 0.0
        for guard in self.deployment.product.guards:
            with requests.Session() as session:
                session.trust_env = False
                certificate = (str(tls / "abby.crt"), str(tls / "abby.key"))
                page = session.get(f"{guard.url}/metrics", verify=str(tls / "ca.crt"), cert=certificate, timeout=10)
            start = f'mailwarden_{name}_total{{outcome="{outcome}"}} '
            found += sum(float(line.removeprefix(start)) for line in page.text.splitlines() if line.startswith(start))
        return found

    def doctor(self) -> str:
        """Return the line of `mailwarden doctor` about the mailbox; all of its checks take a minute."""
        folder = self.deployment.product.guards[0].folder
        host = Host(folder, guard=read(folder / PATH, GuardConfig), abby=None)

        async def line() -> str:
            [found] = [each async for each in check_report_mailboxes(host)]
            return str(found)

        return asyncio.run(line())


@pytest.fixture(scope="module")
def polled(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PolledDeployment]:
    folder, servers = tmp_path_factory.mktemp("polled"), temporary_folder()
    password = servers / "password"
    password.write_text(f"{SECRET}\n")
    with (
        Sink() as sink,
        run_deployment(engines, deployment_template, folder, guards=({}, {}), start=False) as deployment,
    ):
        tls = deployment.product.abby.folder / "tls"
        certificate, key = sign(tls, servers / "dovecot-tls", ["127.0.0.1"])
        dovecot = Dovecot(servers / "dovecot", "reports", SECRET, certificate=certificate, key=key)
        for guard in deployment.product.guards:
            guard.configure(_settings(dovecot, sink.port, password, tls / "ca.crt"))
        try:
            dovecot.start()
            deployment.product.start()
            yield PolledDeployment(deployment, dovecot, engines)
        finally:
            deployment.product.stop()
            dovecot.stop()
            remove_folder(servers)


def _settings(dovecot: Dovecot, next_hop: int, password: Path, ca: Path) -> dict[str, object]:
    mailbox = {
        "address": MAILBOX,
        "host": "127.0.0.1",
        "port": dovecot.tls_port,
        "user": dovecot.user,
        "password": str(password),
        "ca": str(ca),
        "interval": 1_000,
        "timeout": 2_000,
        "maxSize": 100_000,
    }
    smtp = {"mode": "afterQueue", "listen": {"port": free_port()}, "nextHop": f"127.0.0.1:{next_hop}"}
    reports = {"sender": "reports@company.example", "mailboxes": [mailbox]}
    return {"scanSources": {"smtp": smtp, "restApi": {}}, "reports": reports}


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (
            lambda raw, sender: mails.microsoft(mails.delivered_by_exchange(raw), sender=sender),
            ReportFormat.MICROSOFT,
        ),
        (mails.google, ReportFormat.ATTACHED),
        (mails.attached, ReportFormat.ATTACHED),
    ],
    ids=["microsoft", "google", "message/rfc822"],
)
def test_a_report_of_the_mailbox_becomes_a_case(polled: PolledDeployment, write, form: ReportFormat):
    ggrid, raw = polled.received(uuid4().hex)
    before = len(polled.dovecot.mails("Processed"))
    polled.deliver(write(raw, sender=ANN))
    assert wait_until(lambda: len(polled.dovecot.mails("Processed")) == before + 1, PATIENCE)
    [report] = [each for each in polled.reports() if str(each.ggrid) == ggrid]
    assert (report.reporter, report.format) == (ANN, form)
    assert polled.dovecot.mails("INBOX") == []


def test_a_forged_reporter_is_not_verified(polled: PolledDeployment):
    _, raw = polled.received(uuid4().hex)
    before = len(polled.reports())
    polled.deliver(mails.attached(raw, sender=ANN), signed=False)
    assert wait_until(lambda: len(polled.reports(unverified=True)) == 1, PATIENCE)
    assert len(polled.reports()) == before


def test_outages_of_the_mailbox_are_survived_and_shown(polled: PolledDeployment):
    def fails() -> bool:
        return polled.metric("report_mailbox_polls", "failed") > failed

    assert "login accepted" in polled.doctor()
    failed = polled.metric("report_mailbox_polls", "failed")
    polled.dovecot.set_password("another")
    assert wait_until(fails, PATIENCE), "the login fails"
    assert "rejects the login of reports" in polled.doctor()
    polled.dovecot.set_password(SECRET)
    assert wait_until(lambda: "login accepted" in polled.doctor(), PATIENCE)

    ggrid, raw = polled.received(uuid4().hex)
    failed = polled.metric("report_mailbox_polls", "failed")
    polled.dovecot.pause()
    assert wait_until(fails, PATIENCE), "the server hangs"
    polled.received(uuid4().hex)  # scans do not wait for the mailbox
    polled.dovecot.resume()

    failed = polled.metric("report_mailbox_polls", "failed")
    polled.dovecot.stop()
    assert wait_until(fails, PATIENCE), "the server is down"
    assert "Cannot connect" in polled.doctor()
    polled.dovecot.start()
    polled.deliver(mails.attached(raw, sender=ANN))
    assert wait_until(lambda: any(str(each.ggrid) == ggrid for each in polled.reports()), PATIENCE)
    assert wait_until(lambda: "login accepted" in polled.doctor(), PATIENCE)
    logs = "".join(guard.log.read_text("utf-8", "replace") for guard in polled.deployment.product.guards)
    assert "report_mailbox_failed" in logs
    assert SECRET not in logs
