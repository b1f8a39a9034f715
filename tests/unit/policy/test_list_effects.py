"""Findings about allowed links are removed, however many links and findings a message has."""

import time

from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observables
from mailwarden.model.place import area
from mailwarden.policy.list_effects import without_allowed_links
from tests.unit.speed import slowness

LINKS = tuple(f"https://h{number % 3_000}.shop{number % 50}.example/page{number}" for number in range(10_000))


def kept(urls: tuple[str, ...], allowed: frozenset[str], *findings: Finding) -> int:
    evidence = Evidence((Report("urls", True, Status.FINISHED, 0.0, findings, None, ""),))
    left = without_allowed_links(evidence, Listing(allowed_urls=allowed), Observables(urls=urls))
    return len(left.reports[0].findings)


def about(**facts: str) -> Finding:
    return Finding("urls.test", area("body"), dict(facts))


def test_a_host_is_allowed_with_its_subdomains_only() -> None:
    page, other = "https://a.shop.example/1", "https://nota.shop.example/1"
    assert kept((page, other), frozenset({page}), about(url=page), about(hosts="a.shop.example")) == 0
    assert kept((page, other), frozenset({page}), about(hosts="shop.example")) == 1
    assert kept((page,), frozenset({page}), about(hosts="")) == 1


def test_many_findings_about_many_links_take_little_time() -> None:
    findings = [about(url=url) for url in LINKS[:300]]
    started = time.process_time()
    assert kept(LINKS, frozenset(LINKS[:9_100]), *findings) == 200  # their hosts have a link that is not allowed
    assert time.process_time() - started < 1 * slowness()  # 7 s when each finding read all links
