"""Lists that cannot be asked leave a message undecided, and findings about allowed links do not count."""

import pytest

from mailwarden.engines.rspamd import linked_hosts
from mailwarden.lists.lookup import EVERYTHING, ActingLists
from mailwarden.lists.matching import Match
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Omitted, Report, Status
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import Place
from mailwarden.model.record import MessageSummary
from mailwarden.pipeline.collector import Collected
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import without_allowed_links
from mailwarden.scan.list_lookup import AllowlistRescan, ListLookup
from tests.unit.lists.memory_lists import TENANT, MemoryLists, listed
from tests.unit.scan.listing_case import POLICY, SENDER

ENVELOPE = Envelope(SENDER, ("bob@south.example",), "192.0.2.7")
COLLECTED = Collected(
    Evidence((Report("tested", True, Status.FINISHED, 1.0),)),
    MessageSummary(1, "", from_address=SENDER),
    Observables(senders=(SENDER,)),
)


def comparison(*entries: Match, loaded: bool = True) -> ListLookup:
    return ListLookup(
        ActingLists(MemoryLists(*entries, loaded=loaded)), AllowlistRescan(WorkerPool(0, 0, Timeouts()), ())
    )


async def test_lists_that_were_never_copied_leave_a_message_undecided_and_never_clean():
    compared = comparison(loaded=False).compare(TENANT, ENVELOPE, COLLECTED, ())
    judgement = judge(compared.evidence, POLICY)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.summary == (
        "Not decided: The lists have not been copied to this host yet, and nothing else is enough for a verdict."
    )
    assert [report.status for report in compared.evidence.reports if report.analyzer == "lists"] == [Status.FAILED]


async def test_all_observables_are_collected_before_lists_are_loaded():
    assert await comparison(loaded=False).prepare([TENANT]) == EVERYTHING


async def test_nothing_is_looked_for_where_no_list_has_entries():
    assert await comparison().prepare([TENANT]) == ()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("sender-block", SENDER, {Observable.SENDERS}),
        ("ip-block", "192.0.2.7", set()),
        ("subject-block", "you have won", {Observable.SUBJECTS}),
        ("url-block", "thief.example", {Observable.URLS}),
        ("attachment-block", ".exe", {Observable.FILES, Observable.INSIDE}),
        ("file-hash-allow", "a" * 64, {Observable.FILES}),
        ("file-hash-block", "a" * 32, {Observable.FILES, Observable.INSIDE, Observable.DIGESTS}),
    ],
)
async def test_only_observables_of_lists_in_use_are_collected(name, text, wanted):
    assert set(await comparison(listed(name, text)).prepare([TENANT])) == wanted


async def test_a_list_that_came_into_use_while_a_message_was_looked_through_acts_on_the_next():
    compared = comparison(listed("sender-block", SENDER)).compare(TENANT, ENVELOPE, COLLECTED, ())
    assert compared.listing.acting == ()
    assert comparison(listed("ip-block", "192.0.2.7")).compare(TENANT, ENVELOPE, COLLECTED, ()).listing.acting


ALLOWED = Listing(allowed_urls=frozenset({"https://good.example/a", "https://sub.good.example/"}))
OBSERVED = Observables(urls=("https://good.example/a", "https://sub.good.example/", "https://bad.example/"))


def left(*findings: Finding, observables: Observables = OBSERVED) -> tuple[Finding, ...]:
    evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0, findings),))
    return without_allowed_links(evidence, ALLOWED, observables).reports[0].findings


def test_a_finding_about_an_allowed_link_is_dropped_and_one_about_another_stays():
    about = [Finding("urls.ip-host", facts={"url": url}) for url in ("https://good.example/a", "https://bad.example/")]
    assert left(*about) == (about[1],)


def test_a_finding_stays_while_another_link_to_its_host_is_not_allowed():
    finding = Finding("urls.free-hosting", facts={"url": "https://good.example/a"})
    more = Observables(urls=(*OBSERVED.urls, "https://good.example/other"))
    assert left(finding, observables=more) == (finding,)
    assert left(finding) == ()


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ("good.example:url", False),
        ("bank.example->good.example", False),
        ("good.example:url, bad.example:url", True),
        ("unseen.example:url", True),
        ("", True),
        ("good.example:url, " + "x" * 200, True),
    ],
)
def test_engine_findings_on_links_are_dropped_only_when_all_links_are_allowed(options, stays):
    finding = Finding("rspamd.listed-url", facts={"hosts": linked_hosts(options)})
    assert left(finding) == ((finding,) if stays else ())
    other = Finding("rspamd.leaked-password-scam", facts={"options": options})
    assert left(other) == (other,)


def test_an_engine_is_believed_where_a_link_below_the_host_is_not_allowed():
    finding = Finding("rspamd.listed-url", facts={"options": "good.example:url"})
    more = Observables(urls=(*OBSERVED.urls, "https://good.example/other"))
    assert left(finding, observables=more) == (finding,)


@pytest.mark.parametrize(
    ("omitted", "stays"),
    [
        (Omitted("urls.ip-host"), True),
        (Omitted("urls.ip-host", Place(part="1")), True),
        (Omitted("urls.ip-host", Place(part="2")), False),
        (Omitted("urls.shortener"), False),
    ],
)
def test_a_finding_stays_if_others_of_its_name_are_left_out(omitted, stays):
    finding = Finding("urls.ip-host", Place(part="1"), {"url": "https://good.example/a"})
    evidence = Evidence((Report("urls", True, Status.FINISHED, 1.0, (finding,), omitted=(omitted,)),))
    assert bool(without_allowed_links(evidence, ALLOWED, OBSERVED).reports[0].findings) is stays


async def test_a_change_of_the_protected_domains_is_seen_and_many_of_them_are_made_ready(monkeypatch):
    memory_lists = MemoryLists(*(listed("protected-domains", f"company{number:03}.example") for number in range(300)))
    lists = ListLookup(ActingLists(memory_lists), AllowlistRescan(WorkerPool(0, 0, Timeouts()), ()))
    monkeypatch.setattr("mailwarden.lists.impersonation._FRESH", 0.0)
    await lists.prepare([TENANT])
    assert lists.compare(TENANT, ENVELOPE, COLLECTED, EVERYTHING).listing.acting == ()
    memory_lists.entries = (*memory_lists.entries, listed("protected-domains", "n0rth.example"))
    await lists.prepare([TENANT])
    assert lists.compare(TENANT, ENVELOPE, COLLECTED, EVERYTHING).listing.of("protected-domains")
