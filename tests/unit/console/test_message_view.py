"""What the page of a message is made of."""

import json

from msgspec.structs import replace

from mailwarden.console.message_view import checks_of, sentence_of, view_of
from mailwarden.console.screens.analyze import sentence_for
from mailwarden.errors import Overloaded
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Ruling
from mailwarden.model.record import LinkSummary, PartSummary
from mailwarden.policy.rules import load_policy
from mailwarden.wire.strict_json import violation_at
from tests.samples.finished import finished_request

POLICY = load_policy()


def test_the_sentence_has_verdict_and_reason():
    assert sentence_of(finished_request()) == "A link shows another place than it leads to."


def test_the_sentence_names_the_entry_that_decided():
    request = finished_request()
    entry = ListHit("sender-allow", "b.example", request.tenant)
    request = replace(request, ruling=Ruling(Decision.DELIVER, (), (), entry))
    assert sentence_of(request).endswith(" The entry b.example in sender-allow of the tenant decides.")


def test_the_checks_of_the_sender_are_in_one_table():
    findings = (
        Finding("authentication.dkim-pass", facts={"domain": "a.example"}),
        Finding("authentication.spf-fail", facts={"domain": "b.example"}),
        Finding("authentication.aligned", facts={"domain": "a.example", "by": "DKIM"}),
    )
    evidence = Evidence((Report("authentication", True, Status.FINISHED, 1.0, findings),))
    checks = [*checks_of(replace(finished_request(), evidence=evidence))]
    assert [(check.name, check.result, check.domain) for check in checks] == [
        ("SPF", "fail", "b.example"),
        ("DKIM", "pass", "a.example"),
        ("From", "aligned", "a.example"),
    ]


def test_links_attachments_and_handles():
    request = finished_request()
    links = (
        LinkSummary("Help", "https://help.example/", "help.example"),
        LinkSummary("www.bank.example", "https://evil.example/", "evil.example"),
    )
    parts = (PartSummary("1", "text/html", "", 1, "aa"), PartSummary("2", "application/pdf", "a.pdf", 2, "bb"))
    view = view_of(replace(request, summary=replace(request.summary, links=links, parts=parts)), POLICY)
    assert [shown.shown_host for shown in view.links] == ["", "www.bank.example"]
    assert [part.name for part in view.attachments] == ["a.pdf"]
    entries = [(handle.block, handle.entry) for handle in view.candidates]
    assert entries == [
        ("sender-block", "alice@sender.example"),
        ("sender-block", "sender.example\n*.sender.example"),
        ("ip-block", "192.0.2.7"),
        ("url-block", "evil.example"),
        ("url-block", "help.example"),
        ("file-hash-block", "bb"),
    ]
    assert json.loads(view.json)["ggrid"] == str(request.ggrid)


def test_form_errors_use_the_words_of_the_form():
    assert sentence_for(violation_at("/borderMtaData/envelopeRecipients/0", "Too long")) == (
        "Look at the recipients: Too long."
    )
    assert sentence_for(Overloaded("Full.")) == "Full."
