"""Cases of user reports in the console: the list, one case with its reports, and closing it."""

import json
import re
from uuid import uuid4

import pytest

from mailwarden.user_reports.reports import Kind
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import keep
from tests.acceptance.reported_cases import ANN, report_case
from tests.browser.hostile import hostile_strings
from workshop.rig.samples import plain_message

CASES = "/console/cases"
BOB = "bob@company.example"


@pytest.fixture
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ["acme"])


def subjects_on(user: ConsoleSession, query: str = "") -> list[str]:
    page = user.get(CASES + query)
    assert page.status_code == 200
    return re.findall(r'<a class="mw-subject" href="/console/cases/[0-9a-f-]{36}">([^<]*)</a>', page.text)


def stored(deployment: Deployment, case: str) -> dict[str, object]:
    """Return the case as the command shows it."""
    where = ("-o", "json", "--config", str(deployment.product.abby.folder))
    shown = json.loads(run_command("cases", "show", case, *where))
    return {**shown["case"], "reports": shown["reports"]}


def test_an_analyst_closes_a_case_and_the_filter_learns(deployment: Deployment, analyst: ConsoleSession) -> None:
    held = keep(deployment, subject="Salary list", raw=plain_message())
    ggrid = str(deployment.client().call("GET", f"/v1/quarantine/{held}").json["ggrid"])
    case = report_case(
        deployment, subject="Salary list", reporters=(ANN, BOB), ggrid=ggrid, campaign=uuid4(), contents=plain_message()
    )
    page = analyst.get(f"{CASES}/{case}")
    text = text_of(page)
    assert ANN in text
    assert BOB in text
    assert f"/console/messages/{ggrid}?tenant=" in page.text
    assert f"/console/quarantine/{held}" in page.text
    assert "/console/messages?q=campaign:" in page.text
    assert "they agree: phishing" in text

    question = text_of(analyst.get(f"{CASES}/{case}/close?outcome=malicious"))
    assert "The filter of acme is trained with 2 messages." in question
    assert "2 reporters get an answer." in question
    assert stored(deployment, case)["state"] == "open", "the question changes nothing"

    answer = analyst.post(f"{CASES}/{case}/close", {"outcome": "malicious"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{CASES}/{case}?done=case-closed")
    closed = stored(deployment, case)
    assert (closed["state"], closed["outcome"], closed["closed_by"]) == ("closed", "malicious", f"user:{analyst.name}")
    assert {each["trained_as"] for each in closed["reports"]} == {"phishing"}  # type: ignore[attr-defined]
    text = text_of(analyst.get(f"{CASES}/{case}"))
    assert f"closed by {analyst.name}" in text
    assert "Close as" not in text
    learned = text_of(analyst.get("/console/training"))
    assert "phishing uploaded" in learned
    audit = text_of(sign_in(deployment, "auditor", ["acme"]).get("/console/audit"))
    assert "cases.close" in audit


def test_open_cases_come_first_with_those_on_which_reporters_agree(deployment: Deployment) -> None:
    analyst = sign_in(deployment, "analyst", ["club"])
    report_case(deployment, "club", subject="Order A", reporters=("eve@club.example", "max@club.example"))
    report_case(deployment, "club", subject="Order B", reporters=("eve@club.example",))
    done = report_case(deployment, "club", subject="Order C", reporters=("eve@club.example",), kind=Kind.SPAM)
    assert analyst.post(f"{CASES}/{done}/close", {"outcome": "undecided"}).status_code == 303
    assert subjects_on(analyst, "?state=all") == ["Order A", "Order B", "Order C"]
    assert subjects_on(analyst) == ["Order A", "Order B"]
    assert subjects_on(analyst, "?state=closed") == ["Order C"]
    assert "2 cases are open." in text_of(analyst.get(CASES))
    for number in range(30):
        report_case(deployment, "club", subject=f"Number {number}", reporters=("eve@club.example",))
    first = analyst.get(CASES)
    [address] = re.findall(r'href="([^"]*)" rel="next"', first.text)
    shown = [*subjects_on(analyst), *subjects_on(analyst, address.replace("&amp;", "&").removeprefix(CASES))]
    assert sorted(shown) == sorted(["Order A", "Order B", *(f"Number {number}" for number in range(30))])


def test_a_case_of_another_tenant_does_not_exist(deployment: Deployment, analyst: ConsoleSession) -> None:
    case = report_case(deployment, "club", subject="Club only", reporters=("eve@club.example",))
    assert analyst.get(f"{CASES}/{case}").status_code == 404
    assert analyst.get(f"{CASES}/{case}/close?outcome=spam").status_code == 404
    assert analyst.post(f"{CASES}/{case}/close", {"outcome": "spam"}).status_code == 404
    assert "Club only" not in subjects_on(analyst, "?state=all")
    assert stored(deployment, case)["state"] == "open"


def test_a_wrong_close_says_what_is_wrong(deployment: Deployment, analyst: ConsoleSession) -> None:
    case = report_case(deployment, subject="Closed twice")
    assert analyst.post(f"{CASES}/{case}/close", {"outcome": "spam"}, csrf="").status_code == 403
    assert analyst.post(f"{CASES}/{case}/close", {"outcome": "guilty"}).status_code == 400
    assert stored(deployment, case)["state"] == "open"
    assert analyst.post(f"{CASES}/{case}/close", {"outcome": "harmless"}).status_code == 303
    for answer in (
        analyst.post(f"{CASES}/{case}/close", {"outcome": "spam"}),
        analyst.get(f"{CASES}/{case}/close?outcome=spam"),
    ):
        assert answer.status_code == 409
        assert "The case is closed already, as harmless." in text_of(answer)
    for wrong in ("?state=no", "?after=x", "?after=9_2026-01-01T00:00:00_x", f"?after=1_x_{case}"):
        assert analyst.get(CASES + wrong).status_code == 400
    assert analyst.get(f"{CASES}/none").status_code == 404


def test_hostile_texts_of_a_report_are_shown_as_text(deployment: Deployment, analyst: ConsoleSession) -> None:
    for text in list(hostile_strings())[:40:8]:
        case = report_case(deployment, subject=text.replace("\x00", "")[:400], sender="x@hostile.example")
        page = analyst.get(f"{CASES}/{case}")
        assert page.status_code == 200
        assert not re.search(r"<[^>]*\son\w+\s*=", re.sub(r'"[^"]*"', '""', page.text))
