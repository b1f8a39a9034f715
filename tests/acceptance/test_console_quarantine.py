"""The quarantine in the console: held messages found, shown, released, deleted and taken out, within one's scope."""

import re
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import requests

from mailwarden.model.outcome import Verdict
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import finish_releases, keep, state_of

QUARANTINE = "/console/quarantine"
ANN, BOB = "ann@company.example", "bob@company.example"


@pytest.fixture
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ["acme"])


@pytest.fixture
def mark() -> str:
    return uuid4().hex


def listed(user: ConsoleSession, **query: str) -> list[str]:
    """Return the uids of the messages that the screen shows."""
    page = user.get(f"{QUARANTINE}?{urlencode(query)}")
    assert page.status_code == 200, text_of(page)
    return re.findall(r'<a class="mw-subject" href="/console/quarantine/([0-9a-f-]{36})"', page.text)


def chosen(user: ConsoleSession, deed: str, *uids: str, sure: bool = True) -> requests.Response:
    path = QUARANTINE + ("/chosen/do" if sure else "/chosen")
    return user.post(path, {"action": deed, "uid": list(uids)})


def entries(deployment: Deployment, name: str) -> list[str]:
    return [each["entry"] for each in deployment.lists(tenant="acme").entries(name)]


def test_held_messages_are_found_by_every_filter(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    sender = f"{mark}@letters.example"
    spam = keep(deployment, subject=f"Prices {mark}", sender=sender, recipients=(ANN, BOB))
    virus = keep(deployment, subject=f"Invoice {mark}", verdict=Verdict.MALWARE)
    assert listed(analyst, subject=mark) == [virus, spam]
    assert listed(analyst, subject=mark.upper(), verdict="malware") == [virus]
    assert listed(analyst, sender=sender) == [spam]
    assert listed(analyst, subject=mark, sender="letters.example") == [spam]
    assert listed(analyst, subject=mark, recipient=BOB) == [spam]
    assert listed(analyst, subject=mark, recipient="@company.example", tenant="ACME") == [spam]
    assert listed(analyst, subject=mark, state="released") == []
    assert listed(analyst, subject=mark, state="any", tenant=deployment.tenants["acme"]) == [virus, spam]
    text = text_of(analyst.get(f"{QUARANTINE}?subject={mark}"))
    assert f"→&nbsp;{ANN} and 1 more Prices {mark} A sentence." in text
    assert re.search(r"[\d,]+ messages? waits? for release\.", text)
    forgotten = keep(deployment, subject=mark, explained=False)
    assert "The reason is no longer in history." in text_of(analyst.get(f"{QUARANTINE}/{forgotten}"))


@pytest.mark.parametrize("query", ["verdict=bad", "state=gone", "after=yesterday", "after=2026-11-15_x", "after=_"])
def test_invalid_query_values_are_rejected(analyst: ConsoleSession, query: str) -> None:
    assert analyst.get(f"{QUARANTINE}?{query}").status_code == 400


def test_many_are_read_page_by_page(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    uids = [keep(deployment, subject=mark, explained=False) for _ in range(27)]
    first = analyst.get(f"{QUARANTINE}?subject={mark}")
    (older,) = re.findall(r'href="(/console/quarantine\?[^"]*after=[^"]*)"', first.text)
    second = analyst.get(older.replace("&amp;", "&"))
    found = [re.findall(r'name="uid" value="([^"]*)"', page.text) for page in (first, second)]
    assert [len(each) for each in found] == [25, 2]
    assert found[0] + found[1] == uids[::-1]


def test_a_message_is_released_to_chosen_recipients_with_the_result(
    deployment: Deployment, analyst: ConsoleSession
) -> None:
    uid = keep(deployment, recipients=(ANN, BOB))
    path = f"{QUARANTINE}/{uid}"
    page = analyst.get(path)
    assert page.text.count('name="to"') == 2
    assert f'href="{QUARANTINE}"' in page.text
    none = analyst.post(path + "/release", {"some": "1"})
    assert (none.status_code, "Choose at least one recipient." in text_of(none)) == (400, True)
    answer = analyst.post(path + "/release", {"some": "1", "to": ANN})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?done=release-asked")
    assert state_of(deployment, uid) == {ANN: "releasing", BOB: "held"}
    assert "Delivering…" in text_of(analyst.get(path))
    assert analyst.get(path + "/progress").status_code == 204

    assert finish_releases(deployment, {ANN: "550 No such mailbox"}) >= 1
    page = analyst.get(path)
    assert "A release failed, and the message is still held: 550 No such mailbox" in text_of(page)
    assert state_of(deployment, uid) == {ANN: "held", BOB: "held"}
    assert analyst.get(path + "/progress").headers["HX-Redirect"] == path

    assert analyst.post(path + "/release", {"some": "1", "to": [ANN, BOB]}).status_code == 303
    assert finish_releases(deployment) >= 1
    assert state_of(deployment, uid) == {ANN: "released", BOB: "released"}
    assert f"{ANN} released by {analyst.name}, " in text_of(analyst.get(path))
    assert f"Released: {ANN}, {BOB}, by {analyst.name}" in text_of(analyst.get(path)), "the timeline has it"
    old = analyst.post(path + "/release", {"some": "1", "to": ANN})
    assert (old.status_code, "None of the chosen recipients waits for this message." in text_of(old)) == (409, True)
    assert state_of(deployment, uid) == {ANN: "released", BOB: "released"}


def test_a_deletion_needs_confirmation(deployment: Deployment, analyst: ConsoleSession) -> None:
    uid = keep(deployment, recipients=(ANN, BOB))
    path = f"{QUARANTINE}/{uid}"
    unsure = analyst.post(path + "/delete", {"some": "1", "to": BOB})
    assert (unsure.status_code, "Delete this message?" in text_of(unsure)) == (200, True)
    assert f'name="to" value="{BOB}"' in unsure.text
    assert ANN not in unsure.text
    assert state_of(deployment, uid) == {ANN: "held", BOB: "held"}
    answer = analyst.post(path + "/delete", {"some": "1", "to": BOB, "sure": "1"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?done=held-deleted")
    assert state_of(deployment, uid) == {ANN: "held", BOB: "deleted"}
    assert analyst.post(path + "/delete", {"sure": "1"}).status_code == 303
    page = analyst.get(path)
    assert "its content is deleted" in text_of(page)
    assert 'id="do"' not in page.text
    assert "Safe preview" not in page.text


def test_a_sender_is_allowed_or_blocked_for_this_tenant(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    sender, domain = f"{mark}@letters.example", f"{mark}.example"
    uid = keep(deployment, sender=sender)
    answer = analyst.post(f"{QUARANTINE}/{uid}/release", {"allow": "address"})
    assert answer.headers["Location"].endswith("?done=release-allowed")
    assert sender in entries(deployment, "sender-allow")
    uid = keep(deployment, sender=f"eve@{domain}")
    answer = analyst.post(f"{QUARANTINE}/{uid}/delete", {"block": "domain", "sure": "1"})
    assert answer.headers["Location"].endswith("?done=held-deleted-blocked")
    assert domain in entries(deployment, "sender-block")

    public = keep(deployment, sender="eve@gmail.com")
    broad = analyst.post(f"{QUARANTINE}/{public}/release", {"allow": "domain"})
    assert (broad.status_code, "Back to the form" in broad.text) == (409, True)
    assert analyst.post(f"{QUARANTINE}/{public}/release", {"allow": "planet"}).status_code == 400
    assert set(state_of(deployment, public).values()) == {"held"}


def test_malware_is_not_released(deployment: Deployment, analyst: ConsoleSession) -> None:
    uid = keep(deployment, verdict=Verdict.MALWARE)
    assert "Malware is never delivered." in text_of(analyst.get(f"{QUARANTINE}/{uid}"))
    refused = analyst.post(f"{QUARANTINE}/{uid}/release", {"allow": "address"})
    assert (refused.status_code, "Malware is never delivered" in text_of(refused)) == (409, True)
    asked = chosen(analyst, "release", uid, sure=False)
    assert (asked.status_code, "Nothing can be released" in text_of(asked)) == (200, True)
    done = chosen(analyst, "release", uid)
    assert "0 messages are being released" in text_of(done)
    assert "Malware is never delivered" in text_of(done)
    assert set(state_of(deployment, uid).values()) == {"held"}


@pytest.mark.parametrize("verdict", [Verdict.PHISHING, Verdict.FRAUD])
def test_a_dangerous_message_is_released_after_a_question(
    deployment: Deployment, analyst: ConsoleSession, verdict: Verdict
) -> None:
    uid = keep(deployment, verdict=verdict, recipients=(ANN, BOB), sentence="A link leads elsewhere.")
    order = {"some": "1", "to": BOB, "allow": "address", "train": "1"}
    asked = analyst.post(f"{QUARANTINE}/{uid}/release", order)
    assert (asked.status_code, "Release this message?" in text_of(asked)) == (200, True)
    assert "A link leads elsewhere." in text_of(asked)
    assert set(state_of(deployment, uid).values()) == {"held"}
    fields = dict(re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)"', asked.text.partition("<main")[2]))
    assert {name: value for name, value in fields.items() if name != "csrf"} == {**order, "confirmed": "1"}
    assert analyst.post(f"{QUARANTINE}/{uid}/release", fields).status_code == 303
    assert state_of(deployment, uid) == {ANN: "held", BOB: "releasing"}
    finish_releases(deployment)


def test_a_message_without_its_reasons_is_released_after_a_question(
    deployment: Deployment, analyst: ConsoleSession
) -> None:
    uid = keep(deployment, explained=False)
    asked = analyst.post(f"{QUARANTINE}/{uid}/release")
    assert "History does not contain the evidence any more." in text_of(asked)
    assert set(state_of(deployment, uid).values()) == {"held"}


def test_dangerous_messages_among_several_need_the_tick(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    spam = keep(deployment, subject=f"{mark} spam")
    phish = keep(deployment, subject=f"{mark} phish", verdict=Verdict.PHISHING, sentence="A link leads elsewhere.")
    asked = text_of(chosen(analyst, "release", spam, phish, sure=False))
    assert "A link leads elsewhere." in asked
    assert "I have read the evidence of the 1 message" in asked
    refused = chosen(analyst, "release", spam, phish)
    assert (refused.status_code, "Nothing was released." in text_of(refused)) == (400, True)
    assert {*state_of(deployment, spam).values(), *state_of(deployment, phish).values()} == {"held"}
    fields = {"action": "release", "uid": [spam, phish], "confirmed": "1"}
    assert "2 messages are being released" in text_of(analyst.post(f"{QUARANTINE}/chosen/do", fields))
    assert set(state_of(deployment, phish).values()) == {"releasing"}


def test_the_action_bar_has_what_the_role_may_do(deployment: Deployment, analyst: ConsoleSession) -> None:
    uid = keep(deployment)
    bars = {
        user.name: re.search(
            r'aria-label="Actions on this message">(.*?)</nav>', user.get(f"{QUARANTINE}/{uid}").text, re.DOTALL
        )
        for user in (analyst, sign_in(deployment, "auditor", ["acme"]))
    }
    mine = bars.pop(analyst.name)
    assert mine is not None
    assert re.findall(r">(\w+)</(?:a|button)>", mine.group(1)) == ["Release", "Delete", "Block", "Report"]
    assert [*bars.values()] == [None]


def test_several_messages_are_confirmed_processed_and_reported(
    deployment: Deployment, analyst: ConsoleSession, mark: str
) -> None:
    first, second = (keep(deployment, subject=f"{mark} {number}") for number in "12")
    virus = keep(deployment, subject=f"{mark} virus", verdict=Verdict.MALWARE)
    asked = chosen(analyst, "release", first, second, virus, sure=False)
    assert "Release 2 messages?" in text_of(asked)
    assert "1 message is malware and stays where it is" in text_of(asked)
    assert set(state_of(deployment, first).values()) == {"held"}
    done = chosen(analyst, "release", first, virus)
    assert "1 message is being released" in text_of(done)
    assert "1 message is unchanged." in text_of(done)
    assert set(state_of(deployment, first).values()) == {"releasing"}
    assert "Delete 1 message?" in text_of(chosen(analyst, "delete", second, sure=False))
    assert "2 messages are deleted" in text_of(chosen(analyst, "delete", second, virus, second))
    assert set(state_of(deployment, second).values()) == {"deleted"}
    for answer in (
        chosen(analyst, "delete"),
        chosen(analyst, "burn", first),
        chosen(analyst, "delete", *(str(uuid4()) for _ in range(51))),
    ):
        assert answer.status_code == 400


def test_the_message_is_shown_safely_and_taken_out_by_administrators(
    deployment: Deployment, analyst: ConsoleSession
) -> None:
    raw = b"Subject: Hello\r\nContent-Type: text/html\r\n\r\n<p>Dear <script>alert(1)</script>Bob</p>"
    uid = keep(deployment, raw=raw)
    frame = analyst.post(f"{QUARANTINE}/{uid}/preview")
    assert (frame.status_code, "Dear" in frame.text, "<script" in frame.text) == (200, True, False)
    assert frame.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Export as a file" not in analyst.get(f"{QUARANTINE}/{uid}").text
    for method in (analyst.get, analyst.post):
        assert method(f"{QUARANTINE}/{uid}/message").status_code == 403
    mistress = sign_in(deployment, "tenant-administrator", ["acme"])
    assert "as harmful as the message" in text_of(mistress.get(f"{QUARANTINE}/{uid}/message"))
    file = mistress.post(f"{QUARANTINE}/{uid}/message")
    assert (file.status_code, file.content, file.headers["Content-Type"]) == (200, raw, "message/rfc822")
    assert file.headers["Content-Disposition"] == f'attachment; filename="{uid}.eml"'
    audit = sign_in(deployment, "auditor", ["acme"])
    for action, name in (("preview", analyst.name), ("export", mistress.name)):
        assert f"user:{name}" in text_of(audit.get(f"/console/audit?action=quarantine.{action}"))

    assert analyst.post(f"{QUARANTINE}/{uid}/delete", {"sure": "1"}).status_code == 303
    assert "no longer stored" in analyst.post(f"{QUARANTINE}/{uid}/preview").text
    gone = mistress.post(f"{QUARANTINE}/{uid}/message")
    assert (gone.status_code, "no longer stored" in text_of(gone)) == (409, True)


def test_messages_of_other_tenants_are_not_found(deployment: Deployment, mark: str) -> None:
    uid, other = keep(deployment, "club", subject=mark), sign_in(deployment, "tenant-administrator", ["acme"])
    assert listed(other, subject=mark, state="any") == []
    for named in (deployment.tenants["club"], "club"):
        assert other.get(f"{QUARANTINE}?tenant={named}").status_code == 404
    for foreign in (uid, str(uuid4()), "nonsense"):
        path = f"{QUARANTINE}/{foreign}"
        for answer in (
            other.get(path),
            other.get(path + "/progress"),
            other.get(path + "/message"),
            other.post(path + "/message"),
            other.post(path + "/preview"),
            other.post(path + "/release", {"allow": "address"}),
            other.post(path + "/delete", {"block": "domain", "sure": "1"}),
            chosen(other, "delete", foreign, sure=False),
        ):
            assert answer.status_code == 404, answer.url
    done = chosen(other, "delete", uid)
    assert "0 messages are deleted" in text_of(done)
    assert mark not in done.text
    assert set(state_of(deployment, uid).values()) == {"held"}


def test_both_addresses_show_the_same_page(deployment: Deployment, analyst: ConsoleSession, mark: str) -> None:
    uid = keep(deployment, subject=mark)
    ggrid = deployment.client().call("GET", f"/v1/quarantine/{uid}").json["ggrid"]
    pages = [analyst.get(path) for path in (f"{QUARANTINE}/{uid}", f"/console/messages/{ggrid}")]
    for page in pages:
        assert page.status_code == 200
        assert f'action="{QUARANTINE}/{uid}/release"' in page.text
        assert "Held since 2" in text_of(page)
        assert f"/v1/messages/{ggrid}" in page.text
    bodies = [page.text.partition("<main")[2] for page in pages]
    assert bodies[0] == bodies[1]
