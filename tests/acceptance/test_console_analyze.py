"""Analyze: a page that grows as analyzers finish, and nothing kept where that is wished."""

import re
import time
from contextlib import contextmanager
from uuid import uuid4

import pytest
import requests

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in, text_of
from tests.waiting import wait_until
from workshop.rig.samples import malware_message, plain_message

ADDRESS = {"address": "192.0.2.10", "helo": "mail.pass.example"}


@pytest.fixture(scope="module")
def analyst(deployment):
    return sign_in(deployment, "analyst")


def give(user, message, **fields):
    return user.post("/console/analyze", fields, files={"message": ("m.eml", message, "message/rfc822")})


def ggrid_in(page):
    (ggrid,) = re.findall(r'<dt>ggrid</dt><dd class="mw-mono">([0-9a-f-]{36})</dd>', page.text)
    return ggrid


def test_missing_envelope_fields_come_from_the_message(analyst, deployment):
    page = give(analyst, plain_message())
    text = text_of(page)
    assert "Envelope from alice@pass.example Recipients bob@company.example Sent by (not given)" in text
    assert "Tenant acme" in text


def test_a_message_can_be_pasted(analyst):
    page = analyst.post(
        "/console/analyze", {"text": malware_message().decode().replace("\r\n", "\n"), **ADDRESS}, files={}
    )
    assert "Malware: " in text_of(page)
    assert " malware quarantine " in text_of(page), "the verdict and the decision; nothing was quarantined"


def test_a_large_message_is_taken_as_the_api_takes_it(analyst):
    message = malware_message() + b"\r\n" + b"A" * 6_000_000
    page = give(analyst, message, **ADDRESS)
    assert "5.7 MiB" in text_of(page)
    assert "Malware: " in text_of(page)


def test_a_failed_analyzer_is_shown_and_the_verdict_is_not_clean(analyst, plain, stoppable_engines):
    stoppable_engines.rspamd.stop()
    page = give(analyst, plain, **ADDRESS)
    text = text_of(page)
    assert "rspamd failed" in text
    assert "Not decided: " in text
    assert " unknown undecided " in text
    assert "Clean: " not in text


def test_an_analysis_without_storage_leaves_nothing(analyst, deployment, client):
    lists = deployment.lists()
    entry = f"{uuid4().hex}.example"
    assert lists.add("sender-block", entry).status == 200
    message = plain_message(sender=f"eve@{entry}")

    def blocked():
        return "in sender-block of the deployment decides" in text_of(give(analyst, message, unstored="1"))

    assert wait_until(blocked, pause=0.3)
    page = give(analyst, message, unstored="1")
    assert "Not stored" in text_of(page)
    assert "The page of this message" not in text_of(page)
    assert client.explain(ggrid_in(page)).status == 404
    time.sleep(2.5)  # hits are written every second or two
    (row,) = [line for line in lists.entries("sender-block") if line["entry"] == entry]
    assert row["hits"] == 0
    give(analyst, message)
    assert wait_until(lambda: hits_of(lists, entry) == 1, pause=0.5)


def hits_of(lists, entry):
    return next(line["hits"] for line in lists.entries("sender-block") if line["entry"] == entry)


@contextmanager
def streaming(user, message):
    """Send a form and give the answer back as it comes."""
    files = {"csrf": (None, user.csrf), "message": ("m.eml", message)}
    with requests.Session() as session:
        session.trust_env = False
        session.cookies.set(COOKIE, user.cookie)
        with session.post(
            user.url + "/console/analyze", files=files, verify=user.ca, timeout=60, stream=True
        ) as response:
            yield response


def test_the_page_grows_while_the_analyzers_are_at_work(restartable, pausable_clamd, plain):
    user = sign_in(restartable, "analyst")
    pausable_clamd.pause()
    try:
        with streaming(user, plain) as response:
            page = ""
            pieces = response.iter_content(None, decode_unicode=True)
            while "<tr><td>rspamd</td>" not in page:
                page += next(pieces)
            assert "<tr><td>clamav</td>" not in page
            assert "mw-done" not in page
            pausable_clamd.resume()
            page += "".join(pieces)
            assert "<tr><td>clamav</td>" in page
            assert "Clean: " in page
    finally:
        pausable_clamd.resume()


def test_a_guard_killed_during_an_analysis_is_shown(restartable, pausable_clamd, plain):
    user = sign_in(restartable, "analyst")
    pausable_clamd.pause()
    try:
        with streaming(user, plain) as response:
            page = ""
            pieces = response.iter_content(None, decode_unicode=True)
            while "<tr><td>rspamd</td>" not in page:
                page += next(pieces)
            for guard in restartable.product.guards:
                guard.kill()
            page += "".join(pieces)
            assert "No result" in page
            assert "core_unreachable" in page
            assert "Clean: " not in page
            assert page.rstrip().endswith("</html>")
    finally:
        pausable_clamd.resume()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"address": "somewhere"}, "Look at the sending address: Not an IPv4 or IPv6 address."),
        ({"sender": "a\x01b@x.example"}, "Look at the sender"),
        ({"tenant": "nonsense"}, "tenantUid must be a UUID"),
        ({"tenant": str(uuid4())}, "You may not analyze messages for this tenant."),
    ],
)
def test_start_errors_are_shown_on_the_form(analyst, plain, fields, said):
    page = give(analyst, plain, **fields)
    assert 400 <= page.status_code < 500
    assert said in text_of(page)
    assert 'action="/console/analyze"' in page.text


def test_without_a_message_or_a_recipient_nothing_begins(analyst):
    assert "Choose a file, or paste" in text_of(analyst.post("/console/analyze", {}, files={}))
    page = give(analyst, b"From: a@b.example\r\nSubject: x\r\n\r\nhello\r\n")
    assert "Name a recipient" in text_of(page)


def test_a_person_of_a_tenant_analyzes_for_that_tenant_alone(deployment, plain):
    user = sign_in(deployment, "analyst", ["club"])
    page = give(user, plain, **ADDRESS)
    assert page.status_code == 403
    assert "You may not analyze messages for this tenant." in text_of(page)
    page = give(user, plain, tenant=deployment.tenants["acme"])
    assert page.status_code == 403
    page = give(user, plain, tenant=deployment.tenants["club"], **ADDRESS)
    assert "Tenant club" in text_of(page)
    form = user.get("/console/analyze").text
    assert deployment.tenants["acme"] not in form
