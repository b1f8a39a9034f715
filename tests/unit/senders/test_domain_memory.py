"""A domain is known to the deployment by several tenants and some weeks, and one tenant counts once."""

from uuid import UUID

import pytest

from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.senders.domain_memory import (
    AGE,
    DAYS,
    SHARED,
    TENANTS,
    Sighting,
    domain_digest,
    domain_to_look_up,
    findings_of,
    group_of,
    is_known,
)
from mailwarden.senders.model import DomainStats
from mailwarden.senders.relations import Relation

SALT = b"salt"
SHOP = Relation(address="news@shop.example", domain="shop.example", provider="shop.example", own=("acme.example",))


def evidence(*names):
    return Evidence((Report("x", True, Status.FINISHED, 1.0, tuple(map(Finding, names))),))


@pytest.mark.parametrize(
    ("stats", "known"),
    [
        (DomainStats(TENANTS, 0, DAYS, AGE), True),
        (DomainStats(TENANTS - 1, 0, 999, 999), False),
        (DomainStats(63, 0, DAYS - 1, 999), False),
        (DomainStats(63, 0, 999, AGE - 1), False),
        (DomainStats(TENANTS, 1, DAYS, AGE), True),
        (DomainStats(TENANTS, 2, DAYS, AGE), False),
        (DomainStats(20, 4, DAYS, AGE), True),
        (DomainStats(20, 5, DAYS, AGE), False),
    ],
)
def test_a_domain_needs_several_tenants_days_and_little_bad_mail(stats, known):
    assert is_known(stats) is known


def test_only_a_proved_domain_of_its_own_is_compared():
    assert domain_to_look_up(SHOP, evidence("authentication.aligned")) == "shop.example"
    assert domain_to_look_up(SHOP, evidence()) == ""
    for shared in SHARED:
        assert domain_to_look_up(SHOP, evidence("authentication.aligned", shared)) == ""


def test_the_finding_reveals_no_count_and_no_tenant():
    (finding,) = findings_of("shop.example", DomainStats(63, 0, 999, 999))
    assert finding.facts == {"domain": "shop.example"}


def test_rows_of_two_domains_cannot_be_compared_by_their_tenants():
    groups = {
        tuple(group_of(Sighting(domain, UUID(int=number), True), SALT) for number in range(5))
        for domain in ("shop.example", "other.example", "third.example")
    }
    assert len(groups) == 3
    assert domain_digest(SALT, "shop.example") != domain_digest(b"other", "shop.example")
