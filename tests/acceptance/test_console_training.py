"""What people say of messages in the console: on the page of a message and on the screen Training."""

import itertools
import re
from collections.abc import Iterator
from email.message import EmailMessage
from uuid import uuid4

import pytest
import requests

from mailwarden.model.ggrid import new_ggrid
from mailwarden.user_reports.reports import MAX_CONTENTS
from tests.acceptance.client import envelope
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until

LEARNING = "/console/training"
_numbers = itertools.count(1)


def message(subject: str = "Minutes") -> bytes:
    """Write a message of its own with text enough to learn from."""
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "ada@pass.example", "bob@company.example", subject
    made["Message-ID"] = f"<console-learning-{next(_numbers)}@pass.example>"
    made.set_content("The committee met on Tuesday and agreed on the budget, the agenda and the next review. " * 4)
    return made.as_bytes().replace(b"\n", b"\r\n")


def scanned(deployment: Deployment, raw: bytes) -> str:
    return str(deployment.client().submit(raw, envelope()).result["ggrid"])


def say(user: ConsoleSession, ggrid: str, kind: str, raw: bytes = b"") -> requests.Response:
    files = {"message": ("m.eml", raw, "message/rfc822")}
    return user.post(f"/console/messages/{ggrid}/report", {"kind": kind}, files=files)


def give(user: ConsoleSession, tenant: str, kind: str, raw: bytes) -> requests.Response:
    files = {"message": ("m.eml", raw, "message/rfc822")}
    return user.post(LEARNING + "/report", {"tenant": tenant, "kind": kind}, files=files)


def reports_on(page: requests.Response) -> list[str]:
    return re.findall(r'action="/console/training/reports/([0-9a-f-]{36})/undo"', page.text)


@pytest.fixture
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ["acme"])


@pytest.fixture
def acme(deployment: Deployment) -> Iterator[str]:
    """Return a tenant that has learned nothing, before the test and after it."""
    uid = deployment.tenants["acme"]
    root = sign_in(deployment, "deployment-administrator")
    yield uid
    assert root.post(LEARNING + "/reset", {"tenant": uid, "name": "acme"}).status_code == 303


def test_a_message_is_reported_shown_and_taken_back_on_its_page(
    deployment: Deployment, acme: str, analyst: ConsoleSession
) -> None:
    ggrid = scanned(deployment, message())
    path = f"/console/messages/{ggrid}"
    assert reports_on(analyst.get(path)) == []
    answer = say(analyst, ggrid, "phishing")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?tenant={acme}&done=report-untrained")
    page = analyst.get(answer.headers["Location"])
    assert f"phishing by {analyst.name}" in text_of(page)
    assert "not trained: the report came without the message" in text_of(page)
    (report,) = reports_on(page)
    answer = analyst.post(f"{LEARNING}/reports/{report}/undo", {"ggrid": ggrid, "tenant": acme})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?tenant={acme}&done=report-withdrawn")
    assert reports_on(analyst.get(path)) == []


def test_a_message_that_is_given_is_learned_and_a_second_word_replaces_the_first(
    deployment: Deployment, acme: str, analyst: ConsoleSession
) -> None:
    raw = message()
    ggrid = scanned(deployment, raw)
    assert say(analyst, ggrid, "spam", raw).headers["Location"].endswith("&done=report-kept")
    path = f"/console/messages/{ggrid}"
    assert wait_until(lambda: re.search("UTC ?, trained", text_of(analyst.get(path))) is not None, pause=0.2)
    assert "Phishing and spam 1 of 200" in text_of(analyst.get(LEARNING))
    assert say(analyst, ggrid, "good", raw).status_code == 303
    page = analyst.get(path)
    assert len(reports_on(page)) == 1
    assert "good by" in text_of(page)
    expected = "Phishing and spam 0 of 200 0 Good 1 of 200"
    assert wait_until(lambda: expected in text_of(analyst.get(LEARNING)), pause=0.2)


def test_rejected_reports_are_shown_on_the_form(deployment: Deployment, acme: str, analyst: ConsoleSession) -> None:
    raw = message()
    ggrid = scanned(deployment, raw)
    large = b"Subject: x\r\n\r\n" + b"x" * MAX_CONTENTS
    for kind, given, status, sentence in (
        ("lovely", b"", 400, "Choose a kind: phishing, spam or good."),
        ("released", b"", 400, "Choose a kind"),
        ("spam", raw + b"more", 409, "These are not the bytes of that message"),
        ("spam", large, 413, "The file is larger than 1 MiB"),
    ):
        answer = say(analyst, ggrid, kind, given)
        assert (answer.status_code, sentence in text_of(answer)) == (status, True)
        assert "Mark as" in text_of(answer)
    for kind, given, status, sentence in (
        ("spam", b"", 400, "Choose the message as a file."),
        ("lovely", raw, 400, "Choose a kind"),
        ("spam", large, 413, "The file is larger than 1 MiB"),
    ):
        answer = give(analyst, acme, kind, given)
        assert (answer.status_code, sentence in text_of(answer)) == (status, True)
        assert "Report a message" in text_of(answer)
    assert reports_on(analyst.get(LEARNING)) == []


def test_the_screen_shows_statistics_and_every_report(
    deployment: Deployment, acme: str, analyst: ConsoleSession
) -> None:
    text = text_of(analyst.get(LEARNING))
    assert "Not enough reports yet for acme." in text
    assert "Missing: 200 of “Phishing and spam”, 200 of “Good”." in text
    assert "No reports yet" in text
    answer = give(analyst, acme, "good", message("Given"))
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LEARNING}?tenant={acme}&done=report-kept")
    ggrid = scanned(deployment, message("Reported"))
    assert say(analyst, ggrid, "phishing").status_code == 303
    page = analyst.get(LEARNING)
    assert len(reports_on(page)) == 2
    assert f'<a href="/console/messages/{ggrid}?tenant={acme}">Reported</a>' in page.text
    assert re.search(rf"phishing Reported {analyst.name} .* good uploaded", text_of(page))
    newest = reports_on(page)[0]
    answer = analyst.post(f"{LEARNING}/reports/{newest}/undo", {"tenant": acme})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LEARNING}?tenant={acme}&done=report-withdrawn")
    assert newest not in reports_on(analyst.get(LEARNING))


def test_many_reports_are_read_page_by_page(deployment: Deployment, acme: str, analyst: ConsoleSession) -> None:
    for _ in range(52):
        assert give(analyst, acme, "good", message()).status_code == 303
    first = analyst.get(LEARNING)
    (older,) = re.findall(r'href="(/console/training\?[^"]*before=[^"]*)"', first.text)
    second = analyst.get(older.replace("&amp;", "&"))
    assert (len(reports_on(first)), len(reports_on(second))) == (50, 2)
    assert not set(reports_on(first)) & set(reports_on(second))
    for nonsense in ("yesterday", "2026-11-15T09:00:00", "%00"):
        assert analyst.get(f"{LEARNING}?before={nonsense}").status_code == 400


def test_a_reset_needs_the_typed_name(deployment: Deployment, acme: str, analyst: ConsoleSession) -> None:
    assert give(analyst, acme, "good", message()).status_code == 303
    mistress = sign_in(deployment, "tenant-administrator", ["acme"])
    for name in ("", "ACME", "club"):
        answer = mistress.post(LEARNING + "/reset", {"tenant": acme, "name": name})
        assert (answer.status_code, "Nothing was deleted." in text_of(answer)) == (400, True)
    assert len(reports_on(mistress.get(LEARNING))) == 1
    answer = mistress.post(LEARNING + "/reset", {"tenant": acme, "name": "acme"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LEARNING}?tenant={acme}&done=training-reset")
    assert reports_on(mistress.get(LEARNING)) == []


def test_messages_of_other_tenants_are_not_found(deployment: Deployment, acme: str, analyst: ConsoleSession) -> None:
    ggrid = scanned(deployment, message())
    assert say(analyst, ggrid, "spam").status_code == 303
    (report,) = reports_on(analyst.get(f"/console/messages/{ggrid}"))
    other = sign_in(deployment, "tenant-administrator", ["club"])
    for answer in (
        say(other, ggrid, "good"),
        say(other, str(new_ggrid()), "good"),
        say(other, "nonsense", "good"),
        other.post(f"{LEARNING}/reports/{report}/undo", {"tenant": deployment.tenants["club"]}),
        other.post(f"{LEARNING}/reports/{report}/undo", {"ggrid": ggrid}),
        other.post(f"{LEARNING}/reports/{uuid4()}/undo", {}),
        other.post(f"{LEARNING}/reports/nonsense/undo", {}),
        other.get(f"{LEARNING}?tenant={acme}"),
        other.get(f"{LEARNING}?tenant=acme"),
        give(other, acme, "good", message()),
        other.get(f"{LEARNING}/reset?tenant={acme}"),
        other.post(f"{LEARNING}/reset", {"tenant": acme, "name": "acme"}),
    ):
        assert answer.status_code == 404, answer.url
    assert report not in other.get(LEARNING).text
    assert reports_on(analyst.get(LEARNING)) == [report]


def test_an_analysis_that_is_stored_can_be_reported_and_another_is_sent_to_the_screen(
    deployment: Deployment, acme: str, analyst: ConsoleSession
) -> None:
    raw = message()
    files = {"message": ("m.eml", raw, "message/rfc822")}
    stored = analyst.post("/console/analyze", files=files)
    (path,) = re.findall(r'action="(/console/messages/[0-9a-f-]{36}/report)"', stored.text)
    assert say(analyst, path.split("/")[3], "good", raw).status_code == 303
    unstored = analyst.post("/console/analyze", {"unstored": "1"}, files=files)
    assert "/report" not in unstored.text.partition("<main")[2]
    assert f'href="/console/training?tenant={acme}#give"' in unstored.text
