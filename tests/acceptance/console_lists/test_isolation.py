"""The walls around lists in the console: tenants, and text that stays text."""

import re
from urllib.parse import urlencode

import pytest

from tests.acceptance.console_list_forms import add
from tests.acceptance.console_session import ConsoleSession
from tests.acceptance.deployment import Deployment

HOSTILE = ("<script>hit()</script>", '"><img src=x onerror=hit()>', "{{ 7*7 }}", "';hit();'", "&lt;b&gt;")


def test_lists_of_another_tenant_are_unreachable(
    root: ConsoleSession, analyst: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    bank = deployment.tenants["bank"]
    add(root, bank, entry, comment="secret of the bank")
    number = re.findall(r"/history/(\d+)\?", root.get(f"/console/lists/sender-block/history?scope={bank}").text)[0]
    nobody = "01890000-0000-7000-8000-00000000dead"
    for scope in (bank, "global", nobody):
        base = "/console/lists/sender-block"
        for path in (
            f"/console/lists?scope={scope}",
            f"/console/lists/check?scope={scope}&value={entry}",
            f"{base}?scope={scope}",
            f"{base}/entry?scope={scope}&entry={entry}",
            f"{base}/add?scope={scope}",
            f"{base}/import?scope={scope}",
            f"{base}/export/csv?scope={scope}",
            f"{base}/history?scope={scope}",
            f"{base}/history/{number}?scope={scope}",
        ):
            answer = analyst.get(path)
            assert (answer.status_code, "secret" in answer.text) == (404, False), path
        fields = {"scope": scope, "entry": entry, "entries": "new.example", "comment": "x"}
        for path in ("/entry", "/delete", "/delete/preview", f"/history/{number}/undo"):
            assert analyst.post(base + path, fields).status_code == 404, path
        for path in ("/preview", "/add"):
            assert analyst.post(base + path, fields, files={}).status_code == 404, path
    # In a scope of one's own the number of a foreign change is no change at all.
    own = deployment.tenants["acme"]
    assert analyst.get(f"/console/lists/sender-block/history/{number}?scope={own}").status_code == 404
    undo = analyst.post(f"/console/lists/sender-block/history/{number}/undo", {"scope": own})
    assert undo.status_code == 404
    assert entry in deployment.lists(tenant="bank").names("sender-block")
    assert "secret" not in analyst.get(f"/console/lists/check?value={entry}").text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_entries_and_comments_stay_text(root: ConsoleSession, deployment: Deployment, text: str) -> None:
    acme = deployment.tenants["acme"]
    answer = add(root, acme, text, name="subject-block", comment=text)
    assert answer.status_code == 303
    stored = next(each for each in deployment.lists(tenant="acme").entries("subject-block") if each["comment"] == text)
    number = re.findall(r"/history/(\d+)\?", root.get(f"/console/lists/subject-block/history?scope={acme}").text)[0]
    base = "/console/lists/subject-block"
    shown = urlencode({"scope": acme, "entry": stored["entry"]})
    proposed = urlencode({"scope": acme, "entry": text, "comment": text, "expires": text})
    pages = [
        root.get(f"{base}?scope={acme}"),
        root.get(f"{base}?scope={acme}&q=hit", headers={"HX-Request": "true"}),
        root.get(f"{base}/entry?{shown}"),
        root.get(f"{base}/add?{proposed}"),
        root.get(f"{base}/history/{number}?scope={acme}"),
        root.get(f"/console/lists/check?{urlencode({'scope': acme, 'value': text})}"),
        root.post(f"{base}/preview", {"scope": acme, "entries": text, "comment": text}, files={}),
        root.post(f"{base}/delete/preview", {"scope": acme, "entry": stored["entry"]}),
    ]
    for page in pages:
        assert page.status_code == 200
        assert "<script>hit" not in page.text
        assert "<img src=x" not in page.text
        assert ">49<" not in page.text
