"""What a message would have been with another entry in the lists is what processing it with that entry makes of it."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailwarden.lists.catalogue import find_list
from mailwarden.lists.lookup import EVERYTHING, ActingLists, Shown
from mailwarden.lists.matching import Match
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.observables import Observables, ObservedFile
from mailwarden.model.place import Place
from mailwarden.model.record import FinishedRequest, HopSummary, LinkSummary, MessageSummary, PartSummary
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import failed_report, report_of, without_allowed_files, without_allowed_links
from mailwarden.policy.rejudge import Edit, Outcome, RejudgedMessage
from mailwarden.policy.rules import load_policy
from tests.unit.lists.memory_lists import TENANT, MemoryLists, listed

POLICY = load_policy()
SENDERS = ("ada@north.example", "eve@mail.north.example", "bob@acme.example", "ada@n0rth.example")
ADDRESSES = ("192.0.2.7", "192.0.2.9", "198.51.100.3", "2001:db8::7")
URLS = ("http://thief.example/pay", "https://www.thief.example/", "http://shop.example/a?b=1")
FILES = (("tool.exe", "application/octet-stream", "a" * 64), ("plan.pdf", "application/pdf", "b" * 64))
SUBJECTS = ("Quarterly figures", "You have won a prize", "Final notice 4711", "")
RECIPIENTS = ("ceo@south.example", "cfo@south.example", "lab@west.example")

ENTRIES: Sequence[tuple[str, Sequence[str]]] = (
    ("sender-block", ("ada@north.example", "north.example", "*.north.example", "acme.example")),
    ("sender-allow", ("ada@north.example", "north.example", "*.north.example", "acme.example")),
    ("ip-block", ("192.0.2.7", "192.0.2.0/24", "198.51.100.0/25", "2001:db8::/32")),
    ("ip-allow", ("192.0.2.7", "192.0.2.0/24", "198.51.100.0/25", "2001:db8::/32")),
    ("url-block", ("thief.example", "*.thief.example", "thief.example/pay", "shop.example/*")),
    ("url-allow", ("thief.example", "thief.example/pay", "shop.example")),
    ("file-hash-block", ("a" * 64, "b" * 64)),
    ("file-hash-allow", ("a" * 64, "b" * 64)),
    ("attachment-block", (".exe", "application/pdf")),
    ("subject-block", ("you have won", "/notice [0-9]+/i", "figures")),
    ("recipient-exempt", ("south.example", "ceo@south.example", "lab@west.example")),
    ("simulation-senders", ("north.example", "192.0.2.0/24", "198.51.100.3")),
    ("protected-people", ("Ada Byron <ada@north.example>", "Bob Moss <bob@moss.example>")),
    ("protected-domains", ("north.example", "acme.example")),
    ("lookalike-ignore", ("n0rth.example",)),
    ("trusted-relays", ("192.0.2.9", "192.0.2.0/24", "2001:db8::/32")),
)
FINDINGS = (
    Finding("rspamd.reject", facts={"score": 20.0, "required": 15.0}),
    Finding("html.credential-form", Place(part="1"), {"host": "thief.example", "url": "http://thief.example/pay"}),
    Finding("html.smuggling", Place(part="2", name="tool.exe"), {"how": "it saves a decoded blob"}),
    Finding("rspamd.link-mismatch", facts={"options": "shown.example->thief.example"}),
    Finding("authentication.spf-pass", facts={"domain": "north.example"}),
)


class Sample:
    """A random message, as analyzers saw it."""

    def __init__(self, chance: random.Random) -> None:
        self.profile = chance.choice(list(Profile))
        sender = chance.choice(SENDERS)
        shown = sender if chance.random() < 0.7 else chance.choice(SENDERS)
        self.envelope = Envelope(
            sender if chance.random() < 0.9 else "",
            tuple(chance.sample(RECIPIENTS, chance.randint(1, 2))),
            chance.choice((*ADDRESSES, None)),
        )
        findings = chance.sample(FINDINGS, chance.randint(0, 3))
        if chance.random() < 0.5:
            findings.append(Finding("authentication.aligned", facts={"domain": "north.example", "by": "DKIM"}))
        self.evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0, tuple(findings)),))
        about = [str(finding.facts["url"]) for finding in findings if "url" in finding.facts]
        urls = tuple(chance.sample(URLS, chance.randint(0, 3)))
        files = [("", "text/plain", "d" * 64), *chance.sample(FILES, chance.randint(0, 2))]
        relays = tuple(chance.sample(ADDRESSES, chance.randint(0, 3)))
        self.summary = MessageSummary(
            1,
            "f" * 64,
            from_address=shown,
            from_name=chance.choice(("Ada Byron", "byron, ada", "Bob Moss", "")),
            subject=chance.choice(SUBJECTS),
            parts=tuple(
                PartSummary(str(at), kind, name, 1, digest) for at, (name, kind, digest) in enumerate(files, 1)
            ),
            url_hosts=tuple(sorted({url.split("/")[2] for url in (*urls, *about)})),
            links=tuple(LinkSummary(url, url, url.split("/")[2]) for url in urls),
            hops=tuple(HopSummary("h.example", "b.example", address) for address in relays),
        )
        self.observables = Observables(
            senders=(shown,),
            urls=urls,
            files=tuple(
                ObservedFile(Place(part=str(at), name=name), name, kind, digest, is_body=not name)
                for at, (name, kind, digest) in enumerate(files, 1)
            ),
            relays=relays,
        )

    def processed(self, *entries: Match) -> FinishedRequest:
        """Do what guard does with the message and these lists."""
        shown = Shown(self.envelope, self.summary, self.observables, frozenset(EVERYTHING))
        listing = ActingLists(MemoryLists(*entries)).look_up(TENANT, shown, self.evidence)
        reports = without_allowed_links(self.evidence, listing, self.observables).reports
        evidence = Evidence((*reports, report_of(listing, 0.1)))
        judgement = judge(evidence, POLICY)
        rest = without_allowed_files(evidence, listing, self.observables.files, engines_clear=False)
        rest_judgement = judge(rest, POLICY) if listing.allowed_files else None
        assignment = Assignment(TENANT, AssignedBy.REQUEST, self.profile)
        ruling = decide(judgement, assignment, POLICY, listing=listing, rest_judgement=rest_judgement)
        now = datetime.now(UTC)
        return FinishedRequest(
            new_ggrid(), TENANT, now, now, "restApi", "g", self.envelope, self.summary, evidence, judgement, ruling,
            self.profile, listing=listing.recorded(),
        )  # fmt: skip


def some_entry(chance: random.Random, names: Sequence[str] = ()) -> Match:
    name, entries = chance.choice([each for each in ENTRIES if not names or each[0] in names])
    return listed(name, chance.choice(entries), everywhere=chance.random() < 0.5)


def rejudged(request: FinishedRequest, match: Match, others: Sequence[Match], *, adds: bool) -> Outcome:
    edit = Edit(match.list_name, frozenset({match.entry}), match.tenant, adds)
    asked = not adds or find_list(match.list_name).needs_other_entries
    others = [each for each in others if asked and each.list_name in edit.affected]
    return RejudgedMessage(request, edit).judge(POLICY, others)


@pytest.mark.parametrize("seed", range(20))
def test_judging_again_with_an_entry_equals_processing(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        sample = Sample(chance)
        entries = [some_entry(chance) for _ in range(chance.randint(0, 4))]
        match = some_entry(chance)
        if match in entries:
            continue
        before, after = sample.processed(*entries), sample.processed(*entries, match)
        outcome = rejudged(before, match, entries, adds=True)
        assert (outcome.verdict, outcome.decision) == (before.judgement.verdict, before.ruling.decision)
        expected = after.judgement.verdict, after.ruling.decision
        assert (outcome.verdict_after, outcome.decision_after) == expected, (match, entries, sample.summary)


@pytest.mark.parametrize("seed", range(20))
def test_judging_again_without_an_entry_equals_processing(seed: int) -> None:
    chance = random.Random(1_000 + seed)
    for _ in range(60):
        sample = Sample(chance)
        match = some_entry(chance, [name for name, _ in ENTRIES if name != "url-allow"])
        entries = [each for each in (some_entry(chance) for _ in range(chance.randint(0, 4))) if each != match]
        before, after = sample.processed(*entries, match), sample.processed(*entries)
        outcome = rejudged(before, match, entries, adds=False)
        expected = after.judgement.verdict, after.ruling.decision
        assert (outcome.verdict_after, outcome.decision_after) == expected, (match, entries, sample.summary)


def test_a_message_without_list_results_is_not_rejudged() -> None:
    sample = Sample(random.Random(1))
    request = sample.processed()
    failed = Evidence((*sample.evidence.reports, failed_report("The lists are away.", 0.1)))
    request = type(request)(**{**{f: getattr(request, f) for f in request.__struct_fields__}, "evidence": failed})
    outcome = rejudged(request, listed("sender-block", "north.example"), (), adds=True)
    assert outcome.undetermined
    assert not outcome.differs


def test_an_entry_of_another_tenant_is_another_entry() -> None:
    edit = Edit("sender-block", frozenset({"north.example"}), UUID(int=9), adds=False)
    request = Sample(random.Random(2)).processed(listed("sender-block", "north.example"))
    assert not RejudgedMessage(request, edit).acted
