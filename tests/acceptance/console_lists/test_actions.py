"""Lists in the console: every action, the walls between tenants, and hostile text."""

import csv
import io
import json
import re

import pytest

from tests.acceptance.client import Client, envelope
from tests.acceptance.console_list_forms import add, confirmation_in
from tests.acceptance.console_session import ConsoleSession, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.samples import plain_message


def test_all_lists_are_shown_by_category_with_their_room(root: ConsoleSession, deployment: Deployment) -> None:
    page = text_of(root.get("/console/lists"))
    for word in ("Block", "Allow", "Exempt", "Impersonation", "Trust", "Blocked senders", "of 1,000,000"):
        assert word in page
    tenant = text_of(root.get(f"/console/lists?scope={deployment.tenants['acme']}"))
    assert "of 100,000" in tenant
    assert "tenant acme" in tenant


def test_entries_are_added_after_a_preview_and_found_again(
    root: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    acme = deployment.tenants["acme"]
    answer = add(root, acme, entry, f"WWW[.]{entry}", comment="Ticket 7", expires="2031-05-06T07:08")
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        f"/console/lists/sender-block?scope={acme}&done=entries-added",
    )
    page = root.get(f"/console/lists/sender-block?scope={acme}&q=ticket")
    assert "The list was changed" in text_of(root.get(answer.headers["Location"]))
    for word in (entry, f"www.{entry}", "Ticket 7", "2031-05-06 07:08", f"user:{root.name}"):
        assert word in text_of(page)
    record = next(each for each in deployment.lists(tenant="acme").entries("sender-block") if each["entry"] == entry)
    assert (record["comment"], record["expires"]) == ("Ticket 7", "2031-05-06T07:08:00.000Z")


def test_the_impact_is_shown_before_a_change(
    root: ConsoleSession, deployment: Deployment, client: Client, engines: Engines
) -> None:
    sender = "impact-guest@pass.example"
    raw = engines.dns.sign(plain_message(sender), "pass.example")
    record = envelope(envelopeFrom=sender, envelopeRecipients=["bob@company.example"])
    assert client.submit(raw, record, tenant=deployment.tenants["acme"]).result["decision"] == "deliver"
    fields = {"scope": deployment.tenants["acme"], "entries": sender}

    def reported() -> str:
        return text_of(root.post("/console/lists/sender-block/preview", fields, files={}))

    assert wait_until(
        lambda: "1 message would have matched, and 1 would have a different verdict or decision" in reported()
    )
    page = root.post("/console/lists/sender-block/preview", fields, files={}, headers={"HX-Request": "true"})
    assert "<html" not in page.text
    assert "Minutes of the meeting" in page.text
    assert re.search(r"deliver\s+1\s+0", text_of(page))
    assert re.search(r"quarantine\s+0\s+1", text_of(page))
    assert sender not in deployment.lists(tenant="acme").names("sender-block")


def test_a_proposal_from_another_page_fills_the_form(analyst: ConsoleSession, deployment: Deployment) -> None:
    acme = deployment.tenants["acme"]
    page = analyst.get(f"/console/lists/url-block/add?scope={acme}&entry=evil.example/x&comment=From+message+7")
    assert page.status_code == 200
    assert ">evil.example/x</textarea>" in page.text
    assert 'value="From message 7"' in page.text


def test_a_mistake_is_reported_with_its_line_and_nothing_is_changed(
    root: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    fields = {"scope": "global", "entries": f"# mine\n{entry}\nno domain\n\ncom\n"}
    page = text_of(root.post("/console/lists/sender-block/preview", fields, files={}))
    assert "2 lines are invalid" in page
    assert "Line 3: no domain" in page
    assert "Line 5: com" in page
    refused = root.post("/console/lists/sender-block/add", fields, files={})
    assert refused.status_code == 422
    assert "Line 3: no domain" in text_of(refused)
    assert entry not in deployment.lists().names("sender-block")


@pytest.mark.parametrize(
    ("entries", "expires"), [("", ""), ("a.example", "tomorrow"), ("a.example", "0001-01-01T00:00+23:00")]
)
def test_a_form_that_cannot_be_read_is_shown_again(root: ConsoleSession, entries: str, expires: str) -> None:
    fields = {"scope": "global", "entries": entries, "expires": expires}
    answer = root.post("/console/lists/sender-block/preview", fields, files={})
    assert answer.status_code == 400
    assert "Add entries" in text_of(answer)


def test_comment_and_end_of_an_entry_are_edited(root: ConsoleSession, deployment: Deployment, entry: str) -> None:
    acme = deployment.tenants["acme"]
    add(root, acme, entry, comment="old", expires="2031-01-01T00:00")
    path = "/console/lists/sender-block/entry"
    assert "old" in root.get(f"{path}?scope={acme}&entry={entry}").text
    answer = root.post(path, {"scope": acme, "entry": entry, "comment": "new", "expires": ""})
    assert answer.status_code == 303
    page = text_of(root.get(answer.headers["Location"]))
    assert "The entry was changed" in page
    record = next(each for each in deployment.lists(tenant="acme").entries("sender-block") if each["entry"] == entry)
    assert (record["comment"], record["expires"]) == ("new", None)
    assert root.post(path, {"scope": acme, "entry": "never.example", "comment": "x"}).status_code == 404
    assert root.post(path, {"scope": acme, "entry": entry, "comment": "x" * 1_025}).status_code == 400


def test_chosen_entries_are_deleted_and_brought_back(root: ConsoleSession, deployment: Deployment, entry: str) -> None:
    acme = deployment.tenants["acme"]
    add(root, acme, entry, f"b.{entry}", comment="keep me")
    fields = {"scope": acme, "entry": [entry, f"b.{entry}"]}
    page = root.post("/console/lists/sender-block/delete/preview", fields)
    assert "Delete 2 entries" in text_of(page)
    assert "last 30 days" in text_of(page)
    answer = root.post("/console/lists/sender-block/delete", fields)
    assert "done=entries-deleted" in answer.headers["Location"]
    assert entry not in deployment.lists(tenant="acme").names("sender-block")
    assert root.post("/console/lists/sender-block/delete", {"scope": acme}).status_code == 400
    history = root.get(f"/console/lists/sender-block/history?scope={acme}")
    number = re.findall(r"/history/(\d+)\?", history.text)[0]
    change = text_of(root.get(f"/console/lists/sender-block/history/{number}?scope={acme}"))
    for word in ("Deletion", f"user:{root.name}", "127.0.0.1", entry, "keep me", "unchanged"):
        assert word in change
    undone = root.post(f"/console/lists/sender-block/history/{number}/undo", {"scope": acme})
    assert "done=undone" in undone.headers["Location"]
    record = next(each for each in deployment.lists(tenant="acme").entries("sender-block") if each["entry"] == entry)
    assert record["comment"] == "keep me"
    again = root.post(f"/console/lists/sender-block/history/{number}/undo", {"scope": acme})
    assert "done=nothing-to-undo" in again.headers["Location"]


def test_a_change_through_the_api_is_undone_in_the_console(
    root: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    lists, acme = deployment.lists(tenant="acme"), deployment.tenants["acme"]
    lists.add("sender-block", {"entry": entry, "comment": "by hand"})
    lists.add("sender-block", {"entry": entry, "comment": "by a robot"})
    history = root.get(f"/console/lists/sender-block/history?scope={acme}")
    assert "key:" in text_of(history)
    number = re.findall(r"/history/(\d+)\?", history.text)[0]
    root.post(f"/console/lists/sender-block/history/{number}/undo", {"scope": acme})
    record = next(each for each in lists.entries("sender-block") if each["entry"] == entry)
    assert record["comment"] == "by hand"


def test_a_file_is_imported_after_a_preview_as_one_change(
    root: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    acme = deployment.tenants["acme"]
    add(root, acme, f"old.{entry}", comment="by hand")
    text = f"entry,comment,expires\n{entry},feed,\nold.{entry},feed,2031-01-01\nnot an entry,,\n{entry},feed,\n\xff,,\n"
    fields = {"scope": acme, "form": "csv", "origin": "file"}
    files = {"file": ("feed.csv", text.encode("latin-1"), "text/csv")}
    page = root.post("/console/lists/sender-block/preview", fields, files=files)
    shown = text_of(page)
    assert re.search(r"New 1 Changed 1 Unchanged 0 Invalid 2", shown), shown
    assert "Line 4: not an entry" in shown
    assert "Line 6:" in shown
    assert root.post("/console/lists/sender-block/add", confirmation_in(page), files={}).status_code == 303
    records = {each["entry"]: each for each in deployment.lists(tenant="acme").entries("sender-block")}
    assert records[entry]["comment"] == "feed"
    assert (records[f"old.{entry}"]["comment"], records[f"old.{entry}"]["expires"]) == (
        "feed",
        "2031-01-01T00:00:00.000Z",
    )
    history = root.get(f"/console/lists/sender-block/history?scope={acme}")
    assert "Import" in text_of(history)
    number = re.findall(r"/history/(\d+)\?", history.text)[0]
    root.post(f"/console/lists/sender-block/history/{number}/undo", {"scope": acme})
    records = {each["entry"]: each for each in deployment.lists(tenant="acme").entries("sender-block")}
    assert entry not in records
    assert (records[f"old.{entry}"]["comment"], records[f"old.{entry}"]["expires"]) == ("by hand", None)


def test_a_file_that_is_too_large_is_for_the_command(root: ConsoleSession) -> None:
    files = {"file": ("feed.txt", b"".join(b"n%d.example\n" % n for n in range(50_001)), "text/plain")}
    fields = {"scope": "global", "form": "txt", "origin": "file"}
    answer = root.post("/console/lists/sender-block/preview", fields, files=files)
    assert answer.status_code == 400
    assert "mailwarden lists import" in text_of(answer)
    files = {"file": ("feed.txt", b"x" * 2_100_000, "text/plain")}
    assert root.post("/console/lists/sender-block/preview", fields, files=files).status_code == 400


def test_a_list_is_exported_as_csv_and_as_ndjson(root: ConsoleSession, deployment: Deployment, entry: str) -> None:
    acme = deployment.tenants["acme"]
    add(root, acme, entry, comment='=cmd("x"),\n"quoted"')
    answer = root.get(f"/console/lists/sender-block/export/ndjson?scope={acme}")
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert len(records) == int(answer.headers["X-Entry-Count"])
    comment = next(each["comment"] for each in records if each["entry"] == entry)
    table = root.get(f"/console/lists/sender-block/export/csv?scope={acme}")
    assert table.headers["Content-Disposition"] == 'attachment; filename="sender-block.csv"'
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert len(rows) == len(records)
    assert next(row["comment"] for row in rows if row["entry"] == entry) == "'" + comment
    assert root.get("/console/lists/sender-block/export/xml").status_code == 404


def test_a_value_is_checked_in_both_scopes(
    root: ConsoleSession, analyst: ConsoleSession, deployment: Deployment, entry: str
) -> None:
    acme = deployment.tenants["acme"]
    add(root, "global", f"*.{entry}", comment="of the deployment")
    add(root, acme, f"a@mail.{entry}", name="sender-allow", comment="ours")
    page = text_of(root.get(f"/console/lists/check?scope={acme}&value=A@mail.{entry}"))
    assert re.search(rf"acts Allowed senders tenant a@mail\.{entry} ours", page), page
    assert re.search(rf"loses Blocked senders global \*\.{entry} of the deployment", page)
    seen = text_of(analyst.get(f"/console/lists/check?value=A@mail.{entry}"))
    assert f"*.{entry}" in seen
    assert "of the deployment" not in seen
    assert "No match" in text_of(root.get("/console/lists/check?scope=global&value=nothing.example"))
    assert root.get("/console/lists/check?value=x&reading=soul").status_code == 400
    named = root.get(f"/console/lists/check?scope={acme}&value=from:A@mail.{entry}")
    assert f"A@mail.{entry} matches" in text_of(named), "an operator of the message search names the kind"
    assert f"/console/messages?q=from%3AA%40mail.{entry}&amp;range=30d" in named.text
