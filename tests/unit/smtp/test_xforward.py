"""XFORWARD: what Postfix says of its own client."""

import pytest

from mailwarden.smtp.commands import Forwarded, Rejection, decode_xtext


def test_attributes_gather_over_several_commands() -> None:
    first = Forwarded().extended_by("NAME=mail.pass.example ADDR=192.0.2.10 PORT=4711")
    both = first.extended_by("PROTO=ESMTP HELO=mail.pass.example SOURCE=REMOTE IDENT=4F3+2B2")
    assert (both.address, both.helo) == ("192.0.2.10", "mail.pass.example")
    assert dict(both.words)["IDENT"] == "4F3+2B2", "the next hop gets it as it came"
    assert len(both.words) == 7


@pytest.mark.parametrize(
    ("argument", "address", "helo"),
    [
        ("ADDR=IPV6:2001:db8::1", "2001:db8::1", None),
        ("ADDR=ipv6:2001:DB8::1 HELO=[192.0.2.1]", "2001:db8::1", "[192.0.2.1]"),
        ("ADDR=[UNAVAILABLE] HELO=[UNAVAILABLE]", None, None),
        ("addr=192.0.2.10 helo=a+2Bb", "192.0.2.10", "a+b"),
        ("HELO=m+C3+BCller.example", None, "müller.example"),
        ("HELO=a=b", None, "a=b"),  # as Postfix writes it: refused, the sender would be told 451 for ever
        ("HELO=", None, None),
        ("NAME=[TEMPUNAVAIL]", None, None),
    ],
)
def test_address_and_name_of_the_client_are_read(argument: str, address: str | None, helo: str | None) -> None:
    forwarded = Forwarded().extended_by(argument)
    assert (forwarded.address, forwarded.helo) == (address, helo)


@pytest.mark.parametrize(
    "argument",
    [
        None,
        "  ",
        "ADDR",
        "ADDR=mail.example",
        "ADDR=192.0.2.300",
        "LOGIN=alice",
        "HELO=a+0D+0AX-Evil:+20yes",
        "HELO=a+00b",
        "HELO=a+7Fb",
        "HELO=a+C2+85b",
        "HELO=a+FF",
        "HELO=a+2",
        f"HELO={'a' * 256}",
    ],
)
def test_malformed_parameters_are_rejected(argument: str | None) -> None:
    with pytest.raises(Rejection, match=r"501 5\.5\.4"):
        Forwarded().extended_by(argument)


def test_xtext_stands_for_bytes() -> None:
    assert decode_xtext("a+2Bb+3Dc") == "a+b=c"
    assert decode_xtext("+E2+82+AC") == "€"
    assert decode_xtext("+80") == "\udc80"
