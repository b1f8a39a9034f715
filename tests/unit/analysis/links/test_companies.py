"""Which domains belong to one company, and the operator's own knowledge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.analysis.links import companies, popular
from mailwarden.analysis.links.companies import Companies, same_company
from mailwarden.analysis.links.domain_knowledge import load_domains
from mailwarden.analysis.links.popular import band_of, encode_table
from mailwarden.errors import ConfigurationError


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A folder of the operator; the process forgets it afterwards."""
    yield tmp_path
    companies._own_groups.clear()
    popular._Opened.popular = None
    for cached in (companies.load_companies, same_company, band_of):
        cached.cache_clear()


def test_domains_of_one_group_are_one_company():
    assert same_company("group.example", "group-portal.example")
    assert same_company("group.example", "group.example")
    assert not same_company("group.example", "popular.example")
    assert not same_company("group.example", "")


def test_groups_that_share_a_domain_are_one():
    groups = Companies([["a.example", "b.example"], ["c.example", "d.example"], ["b.example", "c.example"]])
    assert groups.are_one("a.example", "d.example")
    assert not groups.are_one("a.example", "e.example")


def test_a_longer_name_is_the_company_only_if_both_are_popular(own: Path):
    table = {"north.example": 1, "northchat.example": 2, "northpay.example": 3}
    (own / "popular.bin").write_bytes(encode_table(table))
    load_domains(str(own))
    assert same_company("north.example", "northchat.example")
    assert not same_company("north.example", "northpay.example"), "one list proves too little"
    assert not same_company("north.example", "north-login.example"), "everybody can register it"


def test_a_brand_name_under_a_country_needs_to_be_listed():
    assert same_company("paypal.com", "paypal.me")
    assert not same_company("paypal.com", "paypal.zz")


def test_nobody_shares_a_company_by_a_mail_service_or_rented_space():
    assert not same_company("gmail.com", "google.com")
    assert not same_company("github.io", "github.io")


def test_an_operator_adds_groups_and_replaces_the_table(own: Path):
    (own / "companies.yml").write_text("ours:\n  - east.example West.example\n", "utf-8")
    (own / "popular.bin").write_bytes(encode_table({"east.example": 2}))
    load_domains(str(own))
    assert same_company("east.example", "west.example")
    assert same_company("group.example", "group-portal.example"), "the shipped groups stay"
    assert (band_of("east.example"), band_of("popular.example")) == (2, 0)


@pytest.mark.parametrize("text", ["- a b", "ours: a", "ours: [[a]]", "{"])
def test_a_file_of_another_form_is_refused(own: Path, text: str):
    (own / "companies.yml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError):
        load_domains(str(own))


def test_an_empty_folder_is_refused(own: Path):
    with pytest.raises(ConfigurationError, match=r"popular\.bin"):
        load_domains(str(own))
