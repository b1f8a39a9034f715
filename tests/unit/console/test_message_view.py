"""What the page of a message is made of."""

import json

import pytest
from msgspec.structs import replace

from mailwarden.console.message_view import checks_of, facts_of, groups_of, sentence_of, strongest_of, view_of
from mailwarden.console.screens.analyze import sentence_for
from mailwarden.errors import Overloaded
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Judgement, Reason, Ruling, Verdict
from mailwarden.model.record import LinkSummary, PartSummary
from mailwarden.policy.rules import load_policy
from mailwarden.wire.strict_json import violation_at
from tests.samples.finished import finished_request

POLICY = load_policy()


def reason(analyzer, weight, verdict=Verdict.PHISHING):
    return Reason(f"{analyzer}.x", analyzer, verdict, weight, f"{analyzer} says {weight}.")


def test_the_sentence_has_verdict_reason_and_decision():
    assert sentence_of(finished_request()) == "A link shows another place than it leads to. It is quarantined."


def test_the_sentence_names_the_entry_that_decided():
    request = finished_request()
    entry = ListHit("sender-allow", "b.example", request.tenant)
    request = replace(request, ruling=Ruling(Decision.DELIVER, (), (), entry))
    assert sentence_of(request).endswith("It is delivered: the entry b.example in sender-allow of the tenant decides.")


@pytest.mark.parametrize("decision", Decision)
def test_every_decision_has_its_words(decision):
    request = finished_request()
    assert sentence_of(replace(request, ruling=Ruling(decision, (), ()))).endswith(".")


def test_the_group_that_carries_the_verdict_is_first():
    unsigned = replace(reason("authentication", 0), tag="auth.dkim-none")
    reasons = (reason("rspamd", 100, Verdict.SPAM), reason("html", 60), reason("html", 40), unsigned)
    groups = groups_of(Judgement(Verdict.PHISHING, "", reasons, {}, ()), POLICY)
    assert [(group.heading, group.weight) for group in groups] == [
        ("Links and pages", 100),
        ("Rspamd", 100),
        ("Sender", 0),
    ]


def test_reasons_that_rest_on_one_finding_are_one_fact():
    pair = next(rule for rule in POLICY.rules if len(rule.needs) > 1)
    finding = pair.needs[0]
    same = Reason(pair.id, "html", Verdict.PHISHING, 20, "Both.")
    single = next(rule for rule in POLICY.rules if rule.needs == (finding,))
    twice = [Reason(single.id, "html", Verdict.PHISHING, weight, f"One {weight}.") for weight in (30, 5)]
    other = Reason("unknown.rule", "html", Verdict.SPAM, 10, "Other.")
    facts = facts_of((*twice, same, other), POLICY)
    assert [[each.weight for each in fact.reasons] for fact in facts] == [[30, 20, 5], [10]]
    assert [fact.weight for fact in facts] == [55, 10]


def test_the_three_strongest_facts_are_those_of_the_verdict():
    weights = (10, 40, 20, 30)
    own = [Reason(f"a.r{weight}", "html", Verdict.PHISHING, weight, f"P{weight}.") for weight in weights]
    spam = Reason("b.x", "rspamd", Verdict.SPAM, 90, "S90.")
    relief = Reason("c.x", "senders", Verdict.PHISHING, -50, "Known.")
    judgement = Judgement(Verdict.PHISHING, "", (spam, relief, *own), {}, ())
    assert [fact.headline.summary for fact in strongest_of(judgement, POLICY)] == ["P40.", "P30.", "P20."]
    judgement = replace(judgement, reasons=(spam, own[0]))
    assert [fact.headline.summary for fact in strongest_of(judgement, POLICY)] == ["P10.", "S90."]


def test_a_finding_without_weight_and_tag_is_a_note():
    request = finished_request()
    reasons = (reason("html", 60), reason("fraud", 0))
    view = view_of(replace(request, judgement=replace(request.judgement, reasons=reasons)), POLICY)
    assert [group.heading for group in view.groups] == ["Links and pages"]
    assert [note.analyzer for note in view.notes] == ["fraud"]


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
