"""The malware floor: no list delivers malware, but for the exact file; and no list that lets through judges."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.sightings import InnerFile, Sightings
from mailwarden.model.tenant import Profile
from tests.unit.guard.listing_case import ALIGNED, BODY, FILE, MALWARE, MALWARE_IN_FILE, PHISHING, SPAM, SPF, Case
from tests.unit.guard.test_lists_acting import EFFECTS, PLAIN
from tests.unit.lists.shelf import listed


@pytest.mark.contract("2 malware floor")
@pytest.mark.parametrize("name", [row[0] for row in EFFECTS if row[0] != "file-hash-allow"])
def test_no_other_list_delivers_malware(name):
    texts = {row[1] for row in EFFECTS if row[0] == name}
    result = Case((MALWARE, ALIGNED, SPF)).against(*(listed(name, text) for text in texts))
    assert result.outcome == ("malware", "quarantine")


@pytest.mark.contract("2 malware floor")
@pytest.mark.parametrize(
    ("findings", "allowed", "engines_clear", "decision"),
    [
        ((MALWARE_IN_FILE,), FILE.sha256, False, "deliver"),
        ((MALWARE_IN_FILE,), BODY.sha256, False, "quarantine"),
        ((MALWARE,), FILE.sha256, False, "quarantine"),  # the engine was not asked again, or accuses the rest
        ((MALWARE_IN_FILE, PHISHING), FILE.sha256, False, "quarantine"),  # the rest is still phishing
    ],
)
def test_the_exact_file_lifts_the_floor_and_nothing_else(findings, allowed, engines_clear, decision):
    result = Case(findings).against(listed("file-hash-allow", allowed), engines_clear=engines_clear)
    assert result.outcome == ("malware", decision)


def test_a_file_inside_an_allowed_archive_stays_blocked():
    inner = InnerFile("evil.exe", "e" * 64)
    archive = type(FILE)(FILE.place, FILE.name, FILE.media_type, FILE.sha256, inside=(inner,))
    case = replace(PLAIN, sightings=Sightings(files=(archive,)))
    block = listed("file-hash-block", inner.sha256, everywhere=True)
    assert case.against(block, listed("file-hash-allow", FILE.sha256)).outcome == ("malware", "quarantine")


def test_many_hits_of_one_list_do_not_crowd_out_those_of_another():
    urls = tuple(f"https://good{number}.example/" for number in range(100))
    case = replace(PLAIN, sightings=Sightings(urls=urls, files=(FILE,)))
    allowed = [listed("url-allow", url) for url in urls]
    assert case.against(*allowed, listed("file-hash-block", FILE.sha256)).outcome == ("malware", "quarantine")


ENTRIES = st.lists(
    st.builds(
        lambda row, everywhere: listed(row[0], row[1], everywhere=everywhere), st.sampled_from(EFFECTS), st.booleans()
    ),
    max_size=12,
)
FINDINGS = st.sets(st.sampled_from(["spam", "phishing", "malware", "file", "aligned", "spf"]))
NAMED = {
    "spam": SPAM, "phishing": PHISHING, "malware": MALWARE, "file": MALWARE_IN_FILE, "aligned": ALIGNED, "spf": SPF,
}  # fmt: skip


@pytest.mark.contract("2 malware floor")
@given(ENTRIES, FINDINGS, st.sampled_from(Profile))
def test_with_any_entries_malware_is_never_delivered_but_for_the_exact_file(entries, found, profile):
    case = replace(Case(tuple(NAMED[name] for name in sorted(found))), profile=profile)
    result = case.against(*entries)
    if result.judgement.verdict is Verdict.MALWARE and result.ruling.decision is Decision.DELIVER:
        assert FILE.sha256 in result.listing.allowed_files
        assert "malware" not in found


@pytest.mark.contract("2 allow lists")
@given(ENTRIES, FINDINGS)
def test_lists_that_let_through_never_change_the_verdict(entries, found):
    letting = ("sender-allow", "ip-allow", "file-hash-allow", "recipient-exempt", "simulation-senders")
    case = Case(tuple(NAMED[name] for name in sorted(found)))
    chosen = [entry for entry in entries if entry.list_name in letting]
    assert case.against(*chosen).judgement.verdict is case.against().judgement.verdict
