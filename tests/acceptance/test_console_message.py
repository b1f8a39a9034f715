"""The page of a message and its safe preview."""

import hashlib
import json
import re
from email.message import EmailMessage
from html import unescape
from uuid import uuid4

import pytest

from mailwarden.model.ggrid import new_ggrid
from tests.acceptance.client import envelope
from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import wait_for_lists
from workshop.rig.samples import malware_message, plain_message


def phishing():
    message = EmailMessage()
    message["From"] = "Bank <service@pass.example>"
    message["To"] = "bob@company.example"
    message["Subject"] = "Please confirm"
    message["Received"] = (
        "from mail.pass.example ([192.0.2.10]) by mx.company.example (Postfix) with ESMTP id 1;"
        " Sun, 15 Nov 2026 05:00:00 +0000"
    )
    message.set_content("See the page.")
    message.add_alternative(
        '<p>Go to <a href="http://203.0.113.9/login">https://www.bank.example/</a></p>'
        '<form action="https://evil.example/"><input type="password"></form>',
        subtype="html",
    )
    message.add_attachment(b"MZ" + b"\0" * 100, maintype="application", subtype="octet-stream", filename="a.pdf.exe")
    return message.as_bytes().replace(b"\n", b"\r\n")


@pytest.fixture(scope="module")
def analyst(deployment):
    return sign_in(deployment, "analyst")


@pytest.fixture(scope="module")
def phish(client):
    return client.submit(phishing()).result["ggrid"]


@pytest.fixture(scope="module")
def page(analyst, phish):
    return analyst.get(f"/console/messages/{phish}")


def test_the_first_thing_is_one_sentence(page):
    assert page.status_code == 200
    (sentence,) = re.findall(r'<h2 class="mw-sentence"[^>]*>([^<]*)</h2>', page.text)
    assert re.fullmatch(r"Malware: .+\.", unescape(sentence))


def test_the_page_shows_reasons_and_counterfactuals(page):
    text = text_of(page)
    assert "+130 files Attachment a.pdf.exe is a program" in text
    assert "130 malware 100 points are enough" in text
    assert "+70 malware Attachment a.pdf.exe is a program" in text, "with all rules"
    assert "Nearest changes Without" in text
    assert "malware 130 of 100" in text


def test_the_page_shows_sender_hops_links_and_files(page):
    text = text_of(page)
    assert re.search(r"SPF (none|neutral|softfail|fail|pass)\b", text)
    assert "mx.company.example mail.pass.example 192.0.2.10 Sun, 15 Nov 2026" in text
    assert "https://www.bank.example/ shows www[.]bank[.]example hxxp://203[.]0[.]113[.]9/login" in text
    assert "a.pdf.exe application/octet-stream 102 B" in text
    assert "ClamAV" in text
    assert "Steps of the decision" in text


def test_no_link_of_the_message_can_be_followed(page):
    assert "203.0.113.9/login" not in re.sub(r"<pre.*?</pre>", "", page.text, flags=re.DOTALL)
    assert all(not target.startswith(("http:", "//")) for target in re.findall(r'href="([^"]*)"', page.text))


def test_the_page_can_be_taken_as_curl_and_as_json(page, phish, client):
    assert f"/v1/messages/{phish}" in page.text
    (reported,) = re.findall(r'<pre id="as-json"[^>]*>(.*?)</pre>', page.text, re.DOTALL)
    assert json.loads(unescape(reported)) == client.explained(phish)


def test_sender_domain_link_and_file_lead_to_the_lists(page, deployment):
    digest = hashlib.sha256(b"MZ" + b"\0" * 100).hexdigest()
    picks = re.findall(r'name="pick" value="([^"]*)"', page.text)
    assert [pick.partition(":")[0] for pick in picks] == [
        "sender-block", "sender-block", "ip-block", "url-block", "url-block", "file-hash-block",
    ]  # fmt: skip
    assert "url-block:203.0.113.9" in picks
    assert any(pick.endswith(digest) for pick in picks)
    acme = deployment.tenants["acme"]
    for name, entry in (
        ("sender-allow", "service%40pass.example"),
        ("sender-allow", "pass.example%0A%2A.pass.example"),
        ("file-hash-allow", digest),
    ):
        assert re.search(rf'/console/lists/{name}/add\?scope={acme}&amp;comment=[^&]*&amp;entry={entry}"', page.text)


def test_a_person_of_the_tenant_has_no_global_scope_and_an_auditor_no_lists(deployment, phish):
    mine = sign_in(deployment, "analyst", ["acme"]).get(f"/console/messages/{phish}")
    assert mine.status_code == 200
    assert '<option value="global"' not in mine.text
    auditors = sign_in(deployment, "auditor", ["acme"]).get(f"/console/messages/{phish}")
    assert auditors.status_code == 200
    assert "formaction=" not in auditors.text


def test_a_message_of_another_tenant_is_answered_like_none(deployment, phish):
    other = sign_in(deployment, "tenant-administrator", ["club"])
    theirs = other.get(f"/console/messages/{phish}")
    none = other.get(f"/console/messages/{new_ggrid()}")
    assert theirs.status_code == none.status_code == 404
    assert re.sub(r"request <code>\w+", "", theirs.text) == re.sub(r"request <code>\w+", "", none.text)
    assert other.get("/console/messages/nonsense").status_code == 404
    assert other.get(f"/console/messages/{uuid4()}").status_code == 404


def test_the_page_shows_the_dkim_result(client, analyst, engines):
    message = engines.dns.sign(malware_message(), "pass.example")
    ggrid = client.submit(message).result["ggrid"]
    text = text_of(analyst.get(f"/console/messages/{ggrid}"))
    assert "Malware: " in text
    assert "DKIM pass pass.example" in text


def test_an_allowed_sender_is_shown_as_the_deciding_entry(deployment, client, analyst, engines):
    entry = f"{uuid4().hex}@pass.example"
    form = b'<form action="http://203.0.113.9/login"><input type="password" name="password"></form>\r\n'
    head = plain_message(entry).partition(b"Content-Type:")[0]
    message = engines.dns.sign(head + b"Content-Type: text/html\r\n\r\n" + form, "pass.example")
    lists = deployment.lists()
    assert lists.add("sender-allow", entry).status == 200
    try:
        wait_for_lists(deployment)
        ggrid = client.submit(message, envelope(envelopeFrom=entry)).result["ggrid"]
        client.explained(ggrid)
        assert "in sender-allow of the deployment decides" in text_of(analyst.get(f"/console/messages/{ggrid}"))
    finally:
        lists.delete("sender-allow", entry)


def preview(user, message, **fields):
    return user.post("/console/preview", fields, files={"message": ("m.eml", message, "message/rfc822")})


def test_the_preview_shows_the_message_that_is_meant_and_no_other(analyst):
    raw = phishing()
    digest = hashlib.sha256(raw).hexdigest()
    shown = preview(analyst, raw, sha256=digest)
    assert shown.status_code == 200
    assert "<samp>hxxp://203[.]0[.]113[.]9/login</samp>" in shown.text
    other = preview(analyst, raw.replace(b"Please", b"Kindly"), sha256=digest)
    assert "This is another message" in other.text
    assert "hxxp" not in other.text


def test_the_preview_carries_a_policy_of_its_own(analyst):
    for answer in (preview(analyst, phishing()), analyst.get("/console/preview"), preview(analyst, b"")):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        for directive in ("sandbox;", "frame-ancestors 'self'", "form-action 'none'", "base-uri 'none'"):
            assert directive in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-DNS-Prefetch-Control"] == "off"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "=" not in "".join(re.findall(r"<[^>]*>", answer.text.partition("<body>")[2]))
