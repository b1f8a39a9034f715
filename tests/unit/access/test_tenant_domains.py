"""The one form of a domain, and what is no domain."""

import pytest

from mailwarden.access.tenant_domains import NotADomain, domain_of_recipient, normalise_domain


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("acme.example", "acme.example"),
        ("  ACME.Example. ", "acme.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("ａｃｍｅ.example", "acme.example"),
        ("acme。example", "acme.example"),
        ("1and1.example", "1and1.example"),
    ],
)
def test_a_domain_is_kept_in_one_form(written: str, kept: str) -> None:
    assert normalise_domain(written) == kept
    assert normalise_domain(kept) == kept


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        " ",
        ".",
        "localhost",
        "acme..example",
        ".acme.example",
        "acme.example..",
        "-acme.example",
        "acme-.example",
        "ac me.example",
        "acme.example/path",
        "bob@acme.example",
        "*.acme.example",
        "_dmarc.acme.example",
        "192.0.2.1",
        "[192.0.2.1]",
        "acme.example\x00",
        "acme.example\nevil.example",
        "xn--a.example",
        "xn--zzzzzzzzzzzz.example",
        "a" * 64 + ".example",
        "a." * 130 + "example",
        "ü" * 300 + ".example",
        "\ud800.example",
        "a\u202eb.example",
    ],
)
def test_nonsense_is_refused_with_a_sentence(nonsense: str) -> None:
    with pytest.raises(NotADomain) as caught:
        normalise_domain(nonsense)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("address", "domain"),
    [
        ("bob@acme.example", "acme.example"),
        ("BOB@ACME.EXAMPLE.", "acme.example"),
        ('"bob@evil.example"@acme.example', "acme.example"),
        ("bob@bücher.example", "xn--bcher-kva.example"),
        ("bob", None),
        ("bob@", None),
        ("@acme.example", None),
        ("bob@ acme.example", None),
        ("bob@acme.example ", None),
        ("bob@acme.example>", None),
        ("bob@[192.0.2.1]", None),
    ],
)
def test_a_recipient_has_the_domain_after_its_last_at_or_none(address: str, domain: str | None) -> None:
    assert domain_of_recipient(address) == domain
