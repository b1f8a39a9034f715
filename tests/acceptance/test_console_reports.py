"""The weekly report as a page, as text and as an email: each tenant's own, and off by default."""

import re
from datetime import timedelta
from email import message_from_bytes, policy
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mailwarden.access.users import NewUser, Position, Role, User, UserStore
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from mailwarden.weekly_report.model import Week
from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.acceptance.held import _run
from tests.acceptance.last_week import WEEK, attack_last_week, count_last_weeks
from tests.acceptance.smtp import Sink
from workshop.rig.engines import Engines

ALL = Scope.deployment()


@pytest.fixture(scope="module")
def targets(deployment: Deployment) -> dict[str, str]:
    """Have each tenant attacked in the last full week; return the recipient by tenant."""
    found = {tenant: f"{uuid4().hex}@{tenant}.example" for tenant in ("acme", "club")}

    attack_last_week(deployment, found)
    return found


def new_user(deployment: Deployment, tenant: str, email: str) -> User:
    async def work(database: Database) -> User:
        position = Position(Role.ANALYST, frozenset([UUID(deployment.tenants[tenant])]))
        return await UserStore(database).create(ALL, NewUser(f"u{uuid4().hex}", position, email), Actor("tests"))

    return _run(deployment, work)


def test_every_role_reads_the_report_of_the_last_full_week_by_one_click(
    deployment: Deployment, targets: dict[str, str]
) -> None:
    for role in ("analyst", "auditor", "tenant-administrator"):
        user = sign_in(deployment, role, ["acme"])
        assert 'href="/console/reports"' in user.get("/console/account").text, "it is in the menu"
        page = user.get("/console/reports")
        assert page.status_code == 200
        assert targets["acme"] in page.text
        assert targets["club"] not in page.text
        assert f"{WEEK.monday} to {WEEK.sunday}" in text_of(page)
        assert ("Weekly email: off" in text_of(page)) is (role == "tenant-administrator")


def test_the_figures_link_to_the_messages_of_tenant_and_week(deployment: Deployment, targets: dict[str, str]) -> None:
    user = sign_in(deployment, "analyst")
    page = user.get(f"/console/reports?tenant={deployment.tenants['acme']}")
    link = re.search(rf'href="([^"]+)">{re.escape(targets["acme"])}</a>', page.text)
    assert link is not None
    found = user.get(link[1].replace("&amp;", "&"))
    assert len(set(re.findall(r'href="/console/messages/([0-9a-f-]{36})', found.text))) == 3


def test_the_page_compares_with_the_week_before(deployment: Deployment) -> None:
    count_last_weeks(deployment, "default")
    text = text_of(sign_in(deployment, "auditor", ["default"]).get("/console/reports"))
    assert "938 messages were scanned, 89 % more than in the week before (497)." in text
    assert "21 were attacks: 21 phishing. The week before there were 21." in text
    assert "incomplete" not in text
    other = text_of(sign_in(deployment, "auditor", ["acme"]).get("/console/reports"))
    assert "938" not in other, "the figures of another tenant"


def test_another_tenant_and_another_week_are_not_shown(deployment: Deployment, targets: dict[str, str]) -> None:
    user = sign_in(deployment, "tenant-administrator", ["acme"])
    for tenant in (deployment.tenants["club"], "club", str(uuid4()), "x"):
        for path in ("/console/reports", "/console/reports/email"):
            assert user.get(f"{path}?tenant={tenant}").status_code == 404
        changed = user.post("/console/reports/email", {"tenant": tenant, "enabled": "1"})
        assert changed.status_code == 404
    assert targets["acme"] not in user.get(f"/console/reports?week={WEEK.earlier()}").text
    for week in ("2020-W01", "x", str(Week(WEEK.monday + timedelta(days=7)))):
        answer = user.get(f"/console/reports?week={week}")
        assert answer.status_code == 400
        assert "week" in text_of(answer)


def test_only_administrators_switch_the_email_on(deployment: Deployment) -> None:
    acme = deployment.tenants["acme"]
    reader = new_user(deployment, "acme", "reader@acme.example")
    for role, tenants in (("analyst", ["acme"]), ("auditor", ["acme"]), ("analyst", []), ("auditor", [])):
        user = sign_in(deployment, role, tenants)
        assert user.get(f"/console/reports/email?tenant={acme}").status_code == 403
        answer = user.post("/console/reports/email", {"tenant": acme, "enabled": "1", "recipient": str(reader.uid)})
        assert answer.status_code == 403
    for role, tenants in (("tenant-administrator", ["acme"]), ("deployment-administrator", [])):
        user = sign_in(deployment, role, tenants)
        assert "Weekly email: off" in text_of(user.get(f"/console/reports?tenant={acme}"))
        answer = user.post("/console/reports/email", {"tenant": acme, "enabled": "1", "recipient": str(reader.uid)})
        assert answer.status_code == 303
        assert "Weekly email: on" in text_of(user.get(answer.headers["Location"]))
        audit = text_of(user.get(f"/console/audit?tenant={acme}&q=action:weekly-report.change"))
        assert "weekly-report.change" in audit
        assert user.post("/console/reports/email", {"tenant": acme}).status_code == 303


def test_recipients_are_users_of_the_tenant(deployment: Deployment) -> None:
    acme = deployment.tenants["acme"]
    stranger = new_user(deployment, "club", "stranger@club.example")
    user = sign_in(deployment, "tenant-administrator", ["acme"])
    assert "stranger@club.example" not in user.get("/console/reports/email").text
    for chosen in ([str(stranger.uid)], [str(uuid4())], ["x"], []):
        answer = user.post("/console/reports/email", {"tenant": acme, "enabled": "1", "recipient": chosen})
        assert answer.status_code == 400
    assert "Weekly email: off" in text_of(user.get("/console/reports"))


@pytest.mark.slow
def test_a_guard_sends_the_report_over_smtp(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path: Path
) -> None:
    with Sink() as sink:
        guard = {
            "scanSources": {"restApi": {}, "smtp": {"listen": {"port": 0}, "nextHop": f"127.0.0.1:{sink.port}"}},
            "weeklyReport": {"sender": "reports@company.example", "link": "https://mail.example", "hour": 0},
        }
        with run_deployment(engines, deployment_template, tmp_path, guards=(guard,), start=False) as own:
            readers = [new_user(own, "acme", f"{name}@acme.example") for name in ("ada", "bob")]

            async def switch_on(database: Database) -> None:
                async with database.connection() as connection:
                    await connection.execute(
                        "INSERT INTO weekly_reports VALUES ($1, now() - interval '30 days', $2)",
                        UUID(own.tenants["acme"]),
                        [each.uid for each in readers],
                    )

            _run(own, switch_on)
            own.product.start()
            mails = sink.take(2)
            assert sorted(each.recipients for each in mails) == [("ada@acme.example",), ("bob@acme.example",)]
            message = message_from_bytes(mails[0].content, policy=policy.default)
            assert message.get_body(("html",)) is not None
            assert message["Subject"] == f"Weekly report, {WEEK}"
            page = sign_in(own, "auditor", ["acme"]).get("/console/reports")
            assert "Email of this week: finished, sent to 2, 1 attempt." in text_of(page)
        assert sink.empty
