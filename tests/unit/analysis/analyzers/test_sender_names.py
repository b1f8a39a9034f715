"""A display name and an address belong together if they share a word or initials."""

import pytest

from mailwarden.analysis.analyzers.sender import shares_word


@pytest.mark.parametrize(
    ("name", "local", "domain"),
    [
        ("Wick & Willow", "hello", "wickandwillow.example"),
        ("Radhaus Müller", "info", "radhaus-mueller.example"),
        ("Müller", "info", "mueller.example"),
        ("TSV Nordheim", "vorstand", "tsv-1921.example"),
        ("Green River Credit Union", "alerts", "grcu.example"),
        ("Robin Weaver", "robin.weaver", "north.example"),
        ("Your Parcel", "news", "parcels.shop.example"),
    ],
)
def test_an_honest_name_shares_a_word(name, local, domain):
    assert shares_word(name, local, domain) is True


@pytest.mark.parametrize(
    ("name", "local", "domain"),
    [
        ("Netflix", "info", "harbour-lights.example"),
        ("Gutter Guard Savings", "offers", "brook-journal.example"),
        ("Sparkasse Kundenservice", "service", "kunden-portal.example"),
    ],
)
def test_a_foreign_name_shares_none(name, local, domain):
    assert shares_word(name, local, domain) is False


@pytest.mark.parametrize("name", ["", "Support Team", "和菓子", "No Reply"])
def test_a_name_of_general_words_says_nothing(name):
    assert shares_word(name, "info", "north.example") is None
