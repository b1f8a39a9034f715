"""Well-known names and their likenesses."""

import pytest

from mailwarden.analysis.links.brands import load_brands


@pytest.mark.parametrize(
    ("name", "brand"),
    [
        ("PayPal Support", "PayPal"),
        ("Apple", "Apple"),
        ("UPS Express", "UPS"),
        ("三井住友カード", "SMBC"),
        ("dhl", "DHL"),
        ("Dirección General de Tráfico", "DGT"),
        ("CTT Expresso", "CTT"),
        ("CJIB", "CJIB"),
    ],
)
def test_a_name_that_is_claimed_is_known(name: str, brand: str) -> None:
    found = load_brands().named_by(name)
    assert found is not None
    assert found.name == brand


@pytest.mark.parametrize("name", ["Ups Remi", "Apple Smith", "Chase Miller", "Groupsmith", "Ada North", "Temur", ""])
def test_people_and_words_are_no_claim(name: str) -> None:
    assert load_brands().named_by(name) is None


@pytest.mark.parametrize("domain", ["paypa1.com", "rnicrosoft.com", "legder.fr", "facebookk.com", "xn--pypal-4ve.com"])
def test_a_domain_with_a_slip_is_an_imitation(domain: str) -> None:
    assert load_brands().imitated_by(domain)


@pytest.mark.parametrize(
    "domain", ["paypal.com", "paypal.de", "telkom.co.za", "lindows.com", "north.example", "correos.es", "x", ""]
)
def test_a_domain_of_its_own_is_none(domain: str) -> None:
    assert load_brands().imitated_by(domain) is None


@pytest.mark.parametrize(
    "host", ["paypal-secure.example", "paypal.com.west.example", "login-dhl.info", "costcorewards.com"]
)
def test_a_name_inside_another_domain_is_found(host: str) -> None:
    assert load_brands().borne_by(host)


@pytest.mark.parametrize(
    "host", ["huaweicloud.com", "www.paypal.com", "googleusercontent.com", "groups.example", "sparkasse-nord.de"]
)
def test_an_own_domain_or_another_word_is_no_lookalike(host: str) -> None:
    assert load_brands().borne_by(host) is None
