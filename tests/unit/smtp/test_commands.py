"""MAIL and RCPT: what is read, and what is refused with which code."""

import pytest

from mailwarden.smtp.commands import Recipient, Rejection, Sender, read_recipient, read_sender

SIZE = 1_000_000


@pytest.mark.parametrize(
    ("argument", "sender"),
    [
        ("FROM:<alice@pass.example>", Sender("alice@pass.example")),
        ("from: <alice@pass.example>", Sender("alice@pass.example")),
        ("FROM:<>", Sender("")),
        ("FROM:alice@pass.example SIZE=12", Sender("alice@pass.example", 12)),
        ("FROM:<a@b.example> SIZE=100 BODY=8BITMIME SMTPUTF8", Sender("a@b.example", 100, True, True)),
        ("FROM:<ä@b.example> smtputf8", Sender("ä@b.example", utf8=True)),
        ("FROM:<a@b.example> RET=HDRS ENVID=x+2By", Sender("a@b.example", notification=("RET=HDRS", "ENVID=x+2By"))),
        ("FROM:<a@b.example> ENVID=QUJD==", Sender("a@b.example", notification=("ENVID=QUJD==",))),
        ("FROM:<a@b.example> AUTH=<>", Sender("a@b.example")),
        ('FROM:<"a > b"@b.example>', Sender('"a > b"@b.example')),
        ("FROM:<@old.example,@route.example:a@b.example>", Sender("a@b.example")),
    ],
)
def test_a_sender_is_read_with_its_parameters(argument: str, sender: Sender) -> None:
    assert read_sender(argument, SIZE) == sender


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (None, "501 5.5.4"),
        ("TO:<a@b.example>", "501 5.5.4"),
        ("FROM:", "501 5.5.4"),
        ("FROM:<a@b.example", "553 5.1.3"),
        ("FROM:<a@b.example>x", "553 5.1.3"),
        ("FROM:<a b@b.example>", "553 5.1.3"),
        ("FROM:<a@b.example\rRCPT TO:<x>", "553 5.1.3"),
        ("FROM:<a@b.example\x00>", "553 5.1.3"),
        ("FROM:<a\x85@b.example> SMTPUTF8", "553 5.1.3"),
        ("FROM:<a@b.example>> RCPT", "553 5.1.3"),
        ('FROM:<"a\\"@b.example>', "553 5.1.3"),
        ("FROM:<\udcff@b.example> SMTPUTF8", "553 5.1.3"),
        (f"FROM:<{'a' * 1_100}@b.example>", "553 5.1.3"),
        ("FROM:<ä@b.example>", "553 5.6.7"),
        ("FROM:<a@b.example> SIZE=many", "501 5.5.4"),
        ("FROM:<a@b.example> SIZE=1000001", "552 5.3.4"),
        ("FROM:<a@b.example> SIZE=1 SIZE=2", "501 5.5.4"),
        ("FROM:<a@b.example> SMTPUTF8=yes", "501 5.5.4"),
        ("FROM:<a@b.example> BODY", "501 5.5.4"),
        ("FROM:<a@b.example> BODY=BINARYMIME", "501 5.5.4"),
        ("FROM:<a@b.example> NOTIFY=NEVER", "555 5.5.4"),
        ("FROM:<a@b.example> =", "501 5.5.4"),
    ],
)
def test_a_sender_that_cannot_be_read_is_refused(argument: str | None, code: str) -> None:
    with pytest.raises(Rejection, match=code):
        read_sender(argument, SIZE)


def test_a_recipient_is_read_with_its_parameters() -> None:
    argument = "TO:<bob@company.example> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;bob@company.example"
    expected = Recipient("bob@company.example", ("NOTIFY=SUCCESS,FAILURE", "ORCPT=rfc822;bob@company.example"))
    assert read_recipient(argument, utf8=False) == expected
    long = f"ORCPT=rfc822;{'x' * 1_500}"
    assert read_recipient(f"TO:<bob@company.example> {long}", utf8=False).notification == (long,)
    assert read_recipient("TO:<Postmaster>", utf8=False) == Recipient("Postmaster")


@pytest.mark.parametrize(
    "address",
    [
        "b.o.b.@company.example",
        "bob+a/b=c'd@company.example.",
        "bob%else@company.example",
        "bob@[192.0.2.1]",
        "bob@[IPv6:2001:db8::1]",
        '"bob, (of) @north"@company.example',
        "bü@büro.example",
    ],
)
def test_an_unambiguous_recipient_is_accepted(address: str) -> None:
    assert read_recipient(f"TO:<{address}>", utf8=True).address == address


# Postfix takes such for an address of company.example, and before the queue hands on what was typed.
OTHERWISE = (
    "bob@company.example(x)",
    "(x)bob@company.example",
    "bob@(x)company.example",
    "bob@company.example(x@north.example",
    "bob%company.example",
    "bob%company.example@",
    "company.example!bob",
    "bob@company.example@",
    "bob@company.example,",
    "bob@company.example;",
    "bob@company.example,@north.example",
    "all:bob@company.example;",
    "@old.example:bob@company.example(x)",
    '"bob@company.example"',
    "bob",
)


@pytest.mark.parametrize("address", OTHERWISE)
def test_an_ambiguous_recipient_is_rejected(address: str) -> None:
    with pytest.raises(Rejection, match=r"^553 5\.1\.3"):
        read_recipient(f"TO:<{address}>", utf8=False)


@pytest.mark.parametrize(
    ("argument", "code"),
    [("TO:<>", "501 5.1.3"), ("TO:<ü@b.example>", "553 5.6.7"), ("TO:<a@b.example> SIZE=1", "555 5.5.4")],
)
def test_a_recipient_that_cannot_be_read_is_refused(argument: str, code: str) -> None:
    with pytest.raises(Rejection, match=code):
        read_recipient(argument, utf8=False)


def test_reading_an_address_takes_linear_time() -> None:
    for hostile in ('"' * 2_000, '"\\' * 1_000, "a@" * 1_000, "<" * 2_000):
        with pytest.raises(Rejection):
            read_sender(f"FROM:<{hostile}", SIZE)
