"""A product of its own with people of every role, and Debian's Chromium to visit it."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from mailwarden.model.outcome import Verdict
from mailwarden.user_reports.reports import Kind
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_command, run_deployment
from tests.acceptance.held import finish_releases, keep
from tests.acceptance.last_week import attack_last_week, count_last_weeks
from tests.acceptance.reported_cases import report_case
from tests.browser.window import PATIENCE, Window
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.samples import malware_message, plain_message, spam_message

CHROMIUM = "/usr/bin/chromium"
expect.set_options(timeout=PATIENCE)
_playwright = ExitStack()
SCREENSHOTS = Path(os.environ.get("MAILWARDEN_SCREENSHOTS", "run/screenshots"))


@pytest.fixture(scope="session")
def deployment(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Return a product that nobody but the browser tests changes."""
    with run_deployment(engines, deployment_template, tmp_path_factory.mktemp("deployment")) as opened:
        yield opened


@pytest.fixture(scope="session")
def scanned(engines: Engines, deployment: Deployment) -> dict[str, str]:
    """Return the ggrid of a message of each kind that the product has scanned, for one tenant."""
    envelope = {**ENVELOPE, "envelopeRecipients": ["bob@company.example"]}
    made = {"clean": plain_message(), "spam": spam_message(), "malware": malware_message(), "long": long_message()}
    found = {}
    for name, message in made.items():
        answer = deployment.client().submit(engines.dns.sign(message, "pass.example"), {"borderMtaData": envelope})
        found[name] = str(answer.result["ggrid"])
    client = deployment.client()
    assert wait_until(lambda: all(client.explain(ggrid).status == 200 for ggrid in found.values()), pause=0.1)
    return found


def long_message() -> bytes:
    """Make a message whose sender, subject, text, link and file have no place where a line could end."""
    whole = plain_message(f"{'a' * 64}@{'b' * 60}.{'c' * 60}.{'d' * 40}.example", "w" * 800)
    head, _, _ = whole.partition(b"Content-Type:")
    link = f"https://{'e' * 60}.{'f' * 60}.example/{'g' * 300}"
    return head + (
        "Content-Type: multipart/mixed; boundary=long\r\n\r\n--long\r\nContent-Type: text/html\r\n\r\n"
        f'<a href="{link}">{"h" * 300}</a> <a href="{link}2">www.{"i" * 60}.example</a>\r\n--long\r\n'
        f'Content-Type: application/pdf; name="{"j" * 180}.pdf"\r\n'
        f'Content-Disposition: attachment; filename="{"j" * 180}.pdf"\r\n\r\n%PDF-1.4\r\n--long--\r\n'
    ).encode("ascii")


@pytest.fixture(scope="session")
def reported(deployment: Deployment, scanned: dict[str, str]) -> dict[str, str]:
    """Have people say something of messages, and give a rule another weight, for the tenant of those messages."""
    analyst, root = sign_in(deployment, "analyst"), sign_in(deployment, "deployment-administrator")
    path = f"/console/tenants/{deployment.tenants['acme']}/weights"
    for rule, weight in (("html.link-mismatch", "10"), ("html.credential-form", "0")):
        root.post(path, {"rule": rule, "weight": weight})
    for number in range(30):
        kind = ("good", "good", "spam", "phishing")[number % 4]
        message = plain_message().replace(b"Minutes", f"Minutes {number}".encode(), 1)
        fields = {"tenant": deployment.tenants["acme"], "kind": kind}
        files = {"message": ("m.eml", message, "message/rfc822")}
        assert analyst.post("/console/training/report", fields, files=files).status_code == 303
    for name, kind in (("malware", "phishing"), ("clean", "good"), ("spam", "spam")):
        answer = analyst.post(f"/console/messages/{scanned[name]}/report", {"kind": kind}, files={})
        assert answer.status_code == 303
    return scanned


@pytest.fixture(scope="session")
def last_week(deployment: Deployment) -> None:
    """Let a tenant have had mail and attacks in the last full week."""
    attack_last_week(deployment, {"acme": "ann@company.example"}, 5)
    attack_last_week(deployment, {"acme": "board@company.example"}, 2)
    count_last_weeks(deployment, "acme")


@pytest.fixture(scope="session")
def feed(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the uid of a feed with an update that waits: most of its entries are popular domains."""
    file = tmp_path_factory.mktemp("feed") / "feed.txt"
    popular = ("google.com", "microsoft.com", "amazon.com", "apple.com", "paypal.com", "ebay.com", "netflix.com")
    file.write_text(
        "".join(f"{name}\n" for name in (*popular, "gmail.com", "bit.ly", "company.example", "thief.example"))
    )
    where = ("--config", str(deployment.product.abby.folder), "-o", "json")
    settings = ("--source", str(file), "--format", "text", "--list", "sender-block", "--max-left-out", "3")
    made = json.loads(run_command("feeds", "add", "abuse reports", *settings, "--tenant", "acme", *where))
    run_command("feeds", "update", made["uid"], *where)
    return str(made["uid"])


@pytest.fixture(scope="session")
def receivers(deployment: Deployment, engines: Engines) -> dict[str, str]:
    """Return the uid of an event receiver that works, and of one whose receiver fails."""
    where = ("--config", str(deployment.product.abby.folder), "-o", "json")
    names = {"receiver": "soar", "receiver-failing": "siem-lab"}
    made = {
        key: json.loads(
            run_command("receivers", "add", name, f"https://{name}.example/hook", "--tenant", "acme", *where)
        )["uid"]
        for key, name in names.items()
    }
    run_command("receivers", "disable", made["receiver"], *where)  # no test receives its events
    change = (
        "UPDATE event_receivers SET state = 'disabled', failed = 9, last_error = 'The receiver answered 500.' "
        f"WHERE uid = '{made['receiver-failing']}'"
    )
    engines.postgresql.execute(change, deployment.database)
    return made


@pytest.fixture(scope="session")
def held(deployment: Deployment) -> dict[str, str]:
    """Return the uid of a message of each kind that is held, in every state that one can be in."""
    root = sign_in(deployment, "deployment-administrator")
    two = ("ann@company.example", "bob@company.example")
    made = {
        "held-deleted": keep(deployment, subject="Final notice", sentence="It is spam: its text is known as spam."),
        "held-refused": keep(
            deployment,
            subject="Your parcel is waiting",
            sender="parcels@letters.example",
            name="Parcel Service",
            recipients=two,
            sentence="It is phishing: a link shows another address than the one it leads to.",
            verdict=Verdict.PHISHING,
        ),
        "held-released": keep(deployment, "club", subject="Minutes", recipients=("eve@club.example",)),
    }
    root.post(f"/console/quarantine/{made['held-released']}/release")
    root.post(f"/console/quarantine/{made['held-refused']}/release", {"some": "1", "to": two[0], "confirmed": "1"})
    finish_releases(deployment, {two[0]: "550 5.1.1 No such mailbox here"})
    root.post(f"/console/quarantine/{made['held-deleted']}/delete", {"sure": "1"})
    made["held-malware"] = keep(
        deployment,
        subject="Invoice 4711 for the services that were rendered in the third quarter, with all its annexes",
        sentence="It is malware: the file invoice.exe is Win.Test.EICAR.",
        recipients=two[1:],
        verdict=Verdict.MALWARE,
        raw=malware_message(),
    )
    made["held"] = keep(
        deployment,
        subject="Your invoice is overdue",
        sender="billing@letters.example",
        name="Billing department",
        sentence="It is spam: Rspamd gives it 14 points, and its sender has never written here before.",
        recipients=(*two, "carol@company.example"),
        raw=plain_message("billing@letters.example", "Your invoice is overdue"),
    )
    made["message-held"] = str(deployment.client().call("GET", f"/v1/quarantine/{made['held']}").json["ggrid"])
    return made


@pytest.fixture(scope="session")
def cases(deployment: Deployment) -> dict[str, str]:
    """Return the uid of an open case with priority and of a closed one; there is another open case."""
    two = ("ann@company.example", "bob@company.example")
    uid = keep(deployment, subject="Your mailbox is full", raw=plain_message(), verdict=Verdict.SUSPICIOUS)
    ggrid = str(deployment.client().call("GET", f"/v1/quarantine/{uid}").json["ggrid"])
    closed = report_case(deployment, subject="Team lunch on Friday", sender="carol@company.example")
    root = sign_in(deployment, "deployment-administrator")
    assert root.post(f"/console/cases/{closed}/close", {"outcome": "harmless"}).status_code == 303
    report_case(deployment, "club", subject="Prize draw", reporters=("eve@club.example",), kind=Kind.SPAM)
    case = report_case(deployment, reporters=two, ggrid=ggrid, campaign=uuid4(), contents=plain_message())
    return {"case": case, "case-closed": closed}


@pytest.fixture(scope="session")
def chromium() -> Browser:
    """Return the browser of all tests of this folder."""
    browser = _playwright.enter_context(sync_playwright()).chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox"]
    )
    _playwright.callback(browser.close)
    return browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser after this folder: Playwright's own loop would stand in the way of asynchronous tests."""
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _playwright.close()


@pytest.fixture
def open_window(deployment: Deployment, chromium: Browser) -> Iterator[Callable[..., Window]]:
    """Return what opens a browser window of its own; whatever it reported against us fails the test."""
    windows: list[Window] = []

    def open_window(*, width: int = 1280, dark: bool = False, zone: str = "UTC") -> Window:
        windows.append(Window(chromium, deployment.product.url, SCREENSHOTS, width=width, dark=dark, zone=zone))
        return windows[-1]

    yield open_window
    for each in windows:
        each.close()
    assert [problem for each in windows for problem in each.problems] == []
