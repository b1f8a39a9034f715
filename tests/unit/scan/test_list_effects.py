"""What each list does to a message, which entry wins, and what no list can do."""

from dataclasses import replace

import pytest

from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.lists.matching import Match
from mailwarden.model.observables import InnerFile, Observables
from mailwarden.model.outcome import Decision
from tests.tables import every
from tests.unit.lists.memory_lists import TENANT, listed
from tests.unit.policy.conftest import failed
from tests.unit.scan.listing_case import (
    ADDRESS,
    ALIGNED,
    FILE,
    MALWARE_IN_FILE,
    PHISHING,
    SENDER,
    SPAM,
    SPF,
    Case,
)

PLAIN = Case()
PROVED = Case((ALIGNED,))
LINKED = replace(PLAIN, observables=Observables(senders=(SENDER,), urls=("https://thief.example/pay?x=1",)))

EFFECTS = [
    ("sender-block", SENDER, PLAIN, ("blocked", "quarantine"), {"list.sender-block"}),
    ("sender-block", "north.example", replace(PLAIN, sender=""), ("blocked", "quarantine"), {"list.sender-block"}),
    (
        "sender-block", "north.example", replace(PLAIN, from_address="x@else.example", observables=Observables()),
        ("blocked", "quarantine"), {"list.sender-block"},
    ),
    (
        "sender-allow", SENDER, Case((ALIGNED, SPAM)),
        ("spam", "deliver"), {"list.sender-allow", "policy.allow-override"},
    ),
    ("sender-allow", "north.example", PROVED, ("clean", "deliver"), {"list.sender-allow"}),
    ("ip-block", "192.0.2.0/24", PLAIN, ("blocked", "quarantine"), {"list.ip-block", "policy.bounce-suppressed"}),
    ("ip-allow", ADDRESS, Case((SPAM,)), ("spam", "deliver"), {"list.ip-allow", "policy.allow-override"}),
    ("ip-allow", ADDRESS, Case((PHISHING,)), ("phishing", "quarantine"), set()),
    ("url-block", "thief.example/pay", LINKED, ("phishing", "quarantine"), {"list.url-block"}),
    ("url-allow", "thief.example", Case((PHISHING,)), ("clean", "deliver"), {"list.url-allow"}),
    ("file-hash-block", FILE.sha256, PLAIN, ("malware", "quarantine"), {"list.file-hash-block"}),
    ("file-hash-block", FILE.sha1, PLAIN, ("malware", "quarantine"), {"list.file-hash-block"}),
    ("file-hash-block", FILE.md5, PLAIN, ("malware", "quarantine"), {"list.file-hash-block"}),
    (
        "file-hash-allow", FILE.sha256, Case((MALWARE_IN_FILE,)),
        ("malware", "deliver"), {"list.file-hash-allow", "policy.allow-override"},
    ),
    ("attachment-block", ".zip", PLAIN, ("blocked", "quarantine"), {"list.attachment-block"}),
    ("attachment-block", "application/zip", PLAIN, ("blocked", "quarantine"), {"list.attachment-block"}),
    ("attachment-block", "text/plain", PLAIN, ("clean", "deliver"), set()),
    ("subject-block", "quarterly", PLAIN, ("blocked", "quarantine"), {"list.subject-block"}),
    ("subject-block", "/^Quart/", PLAIN, ("blocked", "quarantine"), {"list.subject-block"}),
    ("recipient-exempt", "south.example", Case((PHISHING,)), ("phishing", "deliver"), {"list.recipient-exempt"}),
    (
        "simulation-senders", ADDRESS, Case((PHISHING,)),
        ("phishing", "deliver"), {"list.simulation-senders", "policy.simulation"},
    ),
    (
        "simulation-senders", "north.example", Case((PHISHING, SPF)),
        ("phishing", "deliver"), {"list.simulation-senders", "policy.simulation"},
    ),
    (
        "protected-people", "Ada Byron <ada@company.example>", PLAIN,
        ("suspicious", "deliver"), {"sender.vip-impersonation", "list.protected-people", "policy.warn"},
    ),
    ("protected-people", f"Byron, Ada <{SENDER}>", PLAIN, ("clean", "deliver"), set()),
    (
        "protected-domains", "n0rth.example", PLAIN,
        ("suspicious", "deliver"), {"sender.lookalike-domain", "list.protected-domains", "policy.warn"},
    ),
    ("protected-domains", "north.example", PLAIN, ("clean", "deliver"), set()),
    ("lookalike-ignore", "north.example", PLAIN, ("clean", "deliver"), set()),
    ("trusted-relays", ADDRESS, PLAIN, ("clean", "deliver"), {"list.trusted-relays"}),
]  # fmt: skip


@pytest.mark.contract("4 catalogue")
@pytest.mark.parametrize("everywhere", [False, True], ids=["tenant", "global"])
def test_each_list_has_its_effect_in_either_scope(everywhere):
    def check(row):
        name, text, case, outcome, tags = row
        result = case.against(listed(name, text, everywhere=everywhere))
        assert result.outcome == outcome
        assert {tag for tag in result.tags if tag.startswith(("list.", "sender.", "policy."))} == tags

    every(EFFECTS, check)


def test_every_list_has_an_effect_that_is_tested():
    assert {row[0] for row in EFFECTS} == {definition.name for definition in CATALOGUE}, "add a row to EFFECTS"


def test_an_empty_catalogue_of_entries_changes_nothing():
    result = PLAIN.against()
    assert (result.outcome, result.tags) == (("clean", "deliver"), set())


@pytest.mark.contract("2 precedence")
@pytest.mark.parametrize(
    ("entries", "outcome"),
    [
        # Tenant before global, however specific the global entry is.
        ([listed("sender-block", SENDER, everywhere=True), listed("sender-allow", "north.example")], "clean"),
        ([listed("sender-block", "north.example"), listed("sender-allow", SENDER, everywhere=True)], "blocked"),
        # Inside one scope the more specific entry: address, domain, everything below a domain.
        ([listed("sender-block", "north.example"), listed("sender-allow", SENDER)], "clean"),
        ([listed("sender-block", SENDER), listed("sender-allow", "north.example")], "blocked"),
        ([listed("ip-block", "192.0.2.0/24"), listed("ip-allow", "192.0.2.0/28")], "clean"),
        ([listed("ip-block", "192.0.2.0/28"), listed("ip-allow", "192.0.2.0/24")], "blocked"),
        ([listed("url-block", "thief.example"), listed("url-allow", "thief.example/pay")], "clean"),
        ([listed("url-block", "thief.example/pay"), listed("url-allow", "thief.example")], "phishing"),
        # On a tie block beats allow.
        ([listed("sender-block", SENDER), listed("sender-allow", SENDER)], "blocked"),
        ([listed("ip-block", ADDRESS), listed("ip-allow", ADDRESS)], "blocked"),
        ([listed("url-block", "thief.example"), listed("url-allow", "thief.example")], "phishing"),
        ([listed("file-hash-block", FILE.sha256), listed("file-hash-allow", FILE.sha256)], "malware"),
        ([listed("file-hash-block", FILE.md5), listed("file-hash-allow", FILE.sha256)], "clean"),
    ],
)
def test_of_rivals_only_the_winner_acts(entries, outcome):
    case = replace(PROVED, observables=replace_urls(PROVED.observables, "https://thief.example/pay"))
    for ordered in (entries, entries[::-1]):
        assert case.against(*ordered).outcome[0] == outcome


def replace_urls(observables: Observables, *urls: str) -> Observables:
    return Observables(observables.senders, urls, observables.files, observables.relays)


@pytest.mark.contract("2 precedence")
@pytest.mark.parametrize(
    ("blocks", "allows", "outcome"),
    [("tenant", "tenant", "quarantine"), ("tenant", "global", "quarantine"), ("global", "global", "quarantine"),
     ("global", "tenant", "deliver")],
)  # fmt: skip
def test_between_lists_that_are_no_rivals_the_scope_decides_and_then_block(blocks, allows, outcome):
    block = listed("subject-block", "quarterly", everywhere=blocks == "global")
    allow = listed("sender-allow", SENDER, everywhere=allows == "global")
    assert PROVED.against(block, allow).outcome == ("blocked", outcome)


def test_of_several_blocks_the_decision_names_the_gravest():
    blocks = [
        listed("file-hash-block", FILE.sha256), listed("url-block", "thief.example"), listed("ip-block", ADDRESS),
        listed("sender-block", SENDER), listed("attachment-block", ".zip"), listed("subject-block", "quarterly"),
    ]  # fmt: skip
    case = replace(PLAIN, observables=replace_urls(PLAIN.observables, "https://thief.example/pay"))
    for number, first in enumerate(blocks):
        entry = case.against(*reversed(blocks[number:])).ruling.entry
        assert entry is not None
        assert entry.list_name == first.list_name


@pytest.mark.contract("2 precedence")
def test_an_exempt_recipient_and_a_simulation_come_before_the_tenants_own_blocks():
    block = listed("sender-block", SENDER)
    assert PLAIN.against(block, listed("recipient-exempt", "bob@south.example")).outcome == ("blocked", "deliver")
    assert PLAIN.against(block, listed("simulation-senders", ADDRESS)).outcome == ("blocked", "deliver")


@pytest.mark.contract("2 several recipients")
def test_one_recipient_without_exemption_decides_for_all():
    case = replace(Case((PHISHING,)), recipients=("bob@south.example", "eve@south.example"))
    assert case.against(listed("recipient-exempt", "bob@south.example")).outcome == ("phishing", "quarantine")
    assert case.against(listed("recipient-exempt", "south.example")).outcome == ("phishing", "deliver")


@pytest.mark.contract("2 sender allow")
@pytest.mark.parametrize(
    "case",
    [
        Case((SPAM,)),
        # Somebody else is proved: the allowed address stands only in the envelope.
        replace(
            Case((SPAM, ALIGNED)), from_address="x@else.example", observables=Observables(senders=("x@else.example",))
        ),
        # Two senders: which of them is shown cannot be told.
        replace(Case((SPAM, ALIGNED)), observables=Observables(senders=(SENDER, "x@else.example"))),
    ],
)
def test_an_allowed_sender_counts_only_if_authenticated(case):
    result = case.against(listed("sender-allow", SENDER))
    assert result.outcome == ("spam", "quarantine")
    assert "list.sender-allow" not in result.tags
    assert ("policy.allow-unauthenticated" in result.tags) == (SENDER in case.observables.senders)


@pytest.mark.contract("2 sender allow")
def test_an_allow_entry_without_effect_does_not_keep_a_block_entry_from_acting():
    result = PLAIN.against(listed("sender-allow", SENDER), listed("sender-block", "north.example", everywhere=True))
    assert result.outcome == ("blocked", "quarantine")


def test_a_simulation_by_domain_counts_only_if_the_domain_is_proved():
    result = Case((PHISHING,)).against(listed("simulation-senders", "north.example"))
    assert result.outcome == ("phishing", "quarantine")
    assert "policy.allow-unauthenticated" in result.tags


@pytest.mark.contract("2 bounce")
def test_a_blocked_address_bounces_while_the_session_is_open():
    entry = listed("ip-block", ADDRESS)
    assert PLAIN.against(entry, session_open=True).ruling.decision is Decision.BOUNCE
    allowed = listed("sender-allow", SENDER)
    everywhere = listed("ip-block", ADDRESS, everywhere=True)
    assert PROVED.against(everywhere, allowed, session_open=True).ruling.decision is Decision.DELIVER


def test_the_name_of_a_file_inside_an_archive_is_blocked():
    archive = type(FILE)(FILE.place, FILE.name, FILE.media_type, FILE.sha256, inside=(InnerFile("evil.exe"),))
    case = replace(PLAIN, observables=Observables(files=(archive,)))
    assert case.against(listed("attachment-block", ".exe")).outcome == ("blocked", "quarantine")


def test_the_address_before_a_trusted_relay_is_the_one_that_counts():
    relayed = replace(PLAIN, observables=Observables(relays=(ADDRESS, "203.0.113.9")))
    trust, block = listed("trusted-relays", ADDRESS), listed("ip-block", "203.0.113.9")
    assert relayed.against(trust, block).outcome[0] == "blocked"
    assert relayed.against(block).outcome[0] == "clean"
    assert relayed.against(trust, listed("ip-block", ADDRESS)).outcome[0] == "clean"


def test_an_allowed_lookalike_is_not_reported():
    entries = (listed("protected-domains", "n0rth.example"), listed("lookalike-ignore", "north.example"))
    result = PLAIN.against(*entries)
    assert (result.outcome, result.tags) == (("clean", "deliver"), {"list.lookalike-ignore"})


@pytest.mark.parametrize("name", ["sender-allow", "ip-allow", "recipient-exempt", "simulation-senders"])
def test_no_list_delivers_an_incompletely_analyzed_message(name):
    text = {"sender-allow": SENDER, "recipient-exempt": "south.example"}.get(name, ADDRESS)
    case = replace(Case((ALIGNED, SPAM)), failed=(failed("clamav"),))
    assert case.against(listed(name, text)).ruling.decision is not Decision.DELIVER


@pytest.mark.contract("3 explanations")
def test_the_trace_and_the_ruling_name_the_entry_that_won():
    entry = listed("sender-block", "north.example", comment="Ticket 4711")
    result = PLAIN.against(entry, listed("sender-block", SENDER, everywhere=True))
    won = result.ruling.entry
    assert won is not None
    assert (won.list_name, won.entry, won.scope, won.comment, won.value) == (
        "sender-block", "north.example", "tenant", "Ticket 4711", SENDER,
    )  # fmt: skip
    lines = {step.step: step.outcome for step in result.ruling.trace}
    assert lines["tenant lists"] == "sender-block `north.example` of the tenant (note: Ticket 4711): quarantine stands"
    (finding,) = [finding for name, finding in result.evidence.findings if name == "lists"]
    assert finding.facts == {
        "list": "sender-block", "entry": "north.example", "scope": "tenant", "value": SENDER, "comment": "Ticket 4711",
    }  # fmt: skip


def test_an_entry_that_acted_is_counted_and_one_that_lost_is_not():
    won, lost = listed("sender-block", SENDER), listed("sender-allow", "north.example")
    assert PROVED.against(won, lost).shelf.noted == [won]


def test_another_tenants_entries_do_not_act():
    entry = listed("sender-block", SENDER)
    other = Match(entry.list_name, entry.entry, type(TENANT)(int=2))
    assert PLAIN.against(other).outcome == ("clean", "deliver")
