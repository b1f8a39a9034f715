"""Messages that are ticked in the list: released, deleted and reported, and campaigns as one entry."""

import html
import re
from uuid import uuid4

import pytest
import requests

from mailwarden.model.outcome import Verdict
from mailwarden.model.record import CampaignIds
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import finish_releases, keep, state_of
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

CHOSEN = "/console/messages/chosen"


@pytest.fixture
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ["acme"])


@pytest.fixture
def mark() -> str:
    return f"m{uuid4().hex}"


def campaign() -> CampaignIds:
    return CampaignIds(uuid4(), uuid4())


def found(user: ConsoleSession, mark: str) -> str:
    page = user.get(f"/console/messages?q=subject:{mark}")
    assert page.status_code == 200, text_of(page)
    return page.text


def ticks(page: str) -> list[str]:
    """Return what the checkboxes of the entries send; those inside a campaign are left out."""
    return re.findall(
        r'name="row" value="([^"]*)"', re.sub(r"<details class=\"mw-group.*?</details>", "", page, flags=re.DOTALL)
    )


def place(deployment: Deployment, uid: str) -> str:
    held = deployment.client().call("GET", f"/v1/quarantine/{uid}").json
    return f"{held['ggrid']}~{held['tenantUid']}"


def states(deployment: Deployment, *uids: str) -> list[str]:
    return [state for uid in uids for state in state_of(deployment, uid).values()]


def confirm(user: ConsoleSession, page: requests.Response, **more: str) -> requests.Response:
    """Submit the form of a page of confirmation with all its fields."""
    form = page.text.partition("<main")[2].partition("<form")[2].partition("</form>")[0]
    (path,) = re.findall(r'action="([^"]*)"', form.partition(">")[0])
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)"', form):
        fields.setdefault(name, []).append(html.unescape(value))
    fields.pop("csrf")
    return user.post(path, {**fields, **more})


def test_held_messages_of_the_list_are_deleted_after_a_question(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    uids = [keep(deployment, subject=f"{mark} {number}") for number in range(3)]
    rows = ticks(found(analyst, mark))
    assert len(rows) == 3
    back = f"/console/messages?q=subject%3A{mark}"
    asked = analyst.post(CHOSEN, {"action": "delete", "row": rows[:2], "back": back})
    assert (asked.status_code, "Delete 2 messages?" in text_of(asked)) == (200, True)
    assert states(deployment, *uids) == ["held"] * 3
    done = confirm(analyst, asked)
    assert "2 messages are deleted" in text_of(done)
    assert f'href="{back}">Back to the messages' in done.text
    assert states(deployment, *uids) == ["held", "deleted", "deleted"], "newest first"


def test_messages_that_are_not_held_are_left_out(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    envelope = {**ENVELOPE, "envelopeRecipients": ["bob@company.example"]}
    answer = deployment.client().submit(plain_message(subject=f"{mark} delivered"), {"borderMtaData": envelope})
    assert wait_until(lambda: answer.result["ggrid"] in found(analyst, mark), pause=0.1)
    deleted, waiting = (keep(deployment, subject=f"{mark} {word}") for word in ("deleted", "waits"))
    analyst.post(f"/console/quarantine/{deleted}/delete", {"sure": "1"})
    rows = ticks(found(analyst, mark))
    assert len(rows) == 3
    asked = analyst.post(CHOSEN, {"action": "release", "row": rows})
    assert "2 selected messages are not held and are left out." in text_of(asked)
    assert "1 message is being released" in text_of(confirm(analyst, asked))
    assert states(deployment, waiting) == ["releasing"]
    finish_releases(deployment)
    none = analyst.post(CHOSEN, {"action": "release", "row": rows})
    assert (none.status_code, "None of the selected messages is held." in text_of(none)) == (409, True)
    assert "3 selected messages are not held" in text_of(none)


def test_dangerous_messages_need_the_tick_also_from_the_list(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    uid = keep(deployment, subject=mark, verdict=Verdict.PHISHING, sentence="A link leads elsewhere.")
    asked = analyst.post(CHOSEN, {"action": "release", "row": ticks(found(analyst, mark))})
    assert "A link leads elsewhere." in text_of(asked)
    refused = confirm(analyst, asked)
    assert (refused.status_code, "Nothing was released." in text_of(refused)) == (400, True)
    assert states(deployment, uid) == ["held"]
    assert "1 message is being released" in text_of(confirm(analyst, refused, confirmed="1"))
    finish_releases(deployment)


@pytest.mark.parametrize("fields", [{}, {"action": "burn"}, {"action": "delete"}, {"action": "delete", "row": "x"}])
def test_a_selection_without_messages_or_action_is_rejected(analyst: ConsoleSession, fields: dict[str, str]) -> None:
    assert analyst.post(CHOSEN, fields).status_code == 400
    assert analyst.post(f"{CHOSEN}/reports", fields).status_code == 400
    assert analyst.post(f"{CHOSEN}/reports/do", fields).status_code == 400


def test_at_most_fifty_messages_are_selected(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    row = place(deployment, keep(deployment, subject=mark))
    rows = [f"{uuid4()}~{uuid4()}" for _ in range(50)]
    asked = analyst.post(CHOSEN, {"action": "delete", "row": [".".join(rows), row]})
    assert (asked.status_code, "Select 50 messages at most." in text_of(asked)) == (400, True)


def test_selected_messages_are_reported(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    for number in range(2):
        keep(deployment, subject=f"{mark} {number}", raw=f"Subject: {mark} {number}\r\n\r\nHello".encode())
    rows = ticks(found(analyst, mark))
    back = f"/console/messages?q=subject%3A{mark}"
    asked = analyst.post(f"{CHOSEN}/reports", {"row": rows, "back": back})
    assert "Report 2 messages" in text_of(asked)
    wrong = confirm(analyst, asked, kind="fun")
    assert (wrong.status_code, "Choose a kind" in text_of(wrong)) == (400, True)
    assert ticks(analyst.get(f"/console/messages?q=subject:{mark}+is:reported").text) == []
    answer = confirm(analyst, asked, kind="phishing")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{back}&done=reported-several")
    assert len(ticks(analyst.get(f"/console/messages?q=subject:{mark}+is:reported").text)) == 2


def test_messages_of_other_tenants_cannot_be_selected(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    uid = keep(deployment, "club", subject=f"{mark} secret")
    row = place(deployment, uid)
    forged = f"{row.partition('~')[0]}~{deployment.tenants['acme']}"
    for value in (row, forged, row.partition("~")[0]):
        for action in ("release", "delete"):
            answer = analyst.post(CHOSEN, {"action": action, "row": value})
            assert answer.status_code == 409
            assert "secret" not in answer.text
        for path in (f"{CHOSEN}/reports", f"{CHOSEN}/reports/do"):
            answer = analyst.post(path, {"row": value, "kind": "spam"})
            assert answer.status_code == 404
            assert "secret" not in answer.text
    assert states(deployment, uid) == ["held"]
    auditor = sign_in(deployment, "auditor")
    assert auditor.post(CHOSEN, {"action": "delete", "row": row}).status_code == 403
    assert 'name="row"' not in found(auditor, mark), "an auditor selects nothing"


def test_a_campaign_is_one_entry_that_selects_all_its_messages(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    ids, people = campaign(), ["ann@company.example", "bob@company.example"]
    uids = [keep(deployment, subject=f"{mark} {n}", campaign=ids, recipients=(people[n % 2],)) for n in range(3)]
    alone = keep(deployment, subject=f"{mark} alone")
    page = found(analyst, mark)
    assert "3 similar, 2 recipients" in re.sub(r"<[^>]*>", "", page)
    assert f"q=campaign%3A{ids.own}" in page
    assert str(ids.shared) not in page
    single, group = ticks(page)
    assert single == place(deployment, alone)
    assert group.split(".") == [place(deployment, uid) for uid in reversed(uids)]
    asked = analyst.post(CHOSEN, {"action": "delete", "row": [group, place(deployment, uids[0])]})
    assert "Delete 3 messages?" in text_of(asked)
    confirm(analyst, asked)
    assert states(deployment, *uids, alone) == ["deleted", "deleted", "deleted", "held"]
    one_by_one = analyst.get(f"/console/messages?q=campaign:{ids.own}").text
    assert len(ticks(one_by_one)) == 3, "the search for a campaign shows each message"


def block_page(user: ConsoleSession, deployment: Deployment, uid: str, more: str = "") -> requests.Response:
    ggrid, _, tenant = place(deployment, uid).partition("~")
    return user.get(f"/console/messages/{ggrid}/block?tenant={tenant}{more}")


def delete_campaign(
    user: ConsoleSession, deployment: Deployment, uid: str, page: requests.Response, **more: object
) -> requests.Response:
    ggrid, _, tenant = place(deployment, uid).partition("~")
    shown = re.findall(r'name="uid" value="([^"]*)"', page.text)
    return user.post(f"/console/messages/{ggrid}/block", {"tenant": tenant, "delete": "1", "uid": shown, **more})


def test_a_campaign_is_blocked_and_its_held_messages_are_deleted(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    ids, sender = campaign(), f"eve@{mark}.example"
    uids = [keep(deployment, subject=f"{mark} {n}", campaign=ids, sender=sender) for n in range(3)]
    elsewhere = keep(deployment, "club", subject=mark, campaign=CampaignIds(uuid4(), ids.shared), sender=sender)
    back = f"/console/messages?q=subject%3A{mark}"
    page = block_page(analyst, deployment, uids[0], f"&pick=sender-block:{sender}&back={back.replace('%', '%25')}")
    assert "Block and delete the 3 held messages of this campaign" in text_of(page)
    assert states(deployment, *uids) == ["held"] * 3, "a preview changes nothing"
    later = keep(deployment, subject=f"{mark} later", campaign=ids, sender=sender)
    answer = delete_campaign(analyst, deployment, uids[0], page, pick=f"sender-block:{sender}", back=back)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{back}&done=blocked-deleted")
    assert states(deployment, *uids) == ["deleted"] * 3
    assert states(deployment, later, elsewhere) == ["held", "held"], "only what the page showed, in this tenant"
    entries = [each["entry"] for each in deployment.lists(tenant="acme").entries("sender-block")]
    assert sender in entries
    page = block_page(analyst, deployment, uids[0])
    answer = delete_campaign(analyst, deployment, uids[0], page)
    assert answer.headers["Location"].endswith("done=campaign-deleted")
    assert states(deployment, later, elsewhere) == ["deleted", "held"]


def test_a_campaign_over_tenants_is_deleted_by_users_of_the_deployment_only(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    shared = uuid4()
    ours = keep(deployment, subject=mark, campaign=CampaignIds(uuid4(), shared))
    theirs = keep(deployment, "club", subject=mark, campaign=CampaignIds(uuid4(), shared))
    ggrid = place(deployment, ours).partition("~")[0]
    forged = {"delete": "1", "uid": [ours, theirs]}
    assert analyst.post(f"/console/messages/{ggrid}/block", {**forged, "scope": "global"}).status_code == 400
    assert states(deployment, ours, theirs) == ["held", "held"]
    assert analyst.post(f"/console/messages/{ggrid}/block", forged).status_code == 303
    assert states(deployment, ours, theirs) == ["deleted", "held"]
    root = sign_in(deployment, "deployment-administrator")
    assert "held message" not in text_of(block_page(root, deployment, ours)), "the tenant of the message is the scope"
    page = block_page(root, deployment, ours, "&scope=global")
    assert "Delete the 1 held message of this campaign" in text_of(page)
    assert delete_campaign(root, deployment, ours, page, scope="global").status_code == 303
    assert states(deployment, theirs) == ["deleted"]
    auditor = sign_in(deployment, "auditor", ["acme"])
    assert auditor.post(f"/console/messages/{ggrid}/block", forged).status_code == 403


def test_a_message_is_sent_without_the_layout_for_the_pane(deployment: Deployment, analyst: ConsoleSession) -> None:
    uid = keep(deployment, subject="Prices")
    ggrid = place(deployment, uid).partition("~")[0]
    asked = {"HX-Request": "true", "HX-Target": "pane"}
    for path in (f"/console/messages/{ggrid}", f"/console/quarantine/{uid}", f"/console/messages/{ggrid}/block"):
        whole, part = analyst.get(path), analyst.get(path, asked)
        assert "<html" in whole.text
        assert "<html" not in part.text
        assert "Prices" in part.text
    asked_to_delete = analyst.post(f"/console/quarantine/{uid}/delete", headers=asked)
    assert "Delete this message?" in text_of(asked_to_delete)
    assert "<html" not in asked_to_delete.text
