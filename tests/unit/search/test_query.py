"""A search as typed becomes conditions; a mistake is a sentence that says what and where."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.errors import InvalidQuery
from mailwarden.search.query import MAX_CHARACTERS, OPERATORS, Query, parse_query, refang

ACME = UUID(int=5)


def conditions(text: str) -> list[tuple[str, str, bool]]:
    query = parse_query(text, tenants={"Acme Ltd": ACME})
    return [(each.operator, each.value, each.negated) for each in query.conditions]


GGRID = UUID("01a1e3c8-0b58-7f2b-9efe-b5e742c2db6f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("   ", []),
        ("from:Alice@Sender.example", [("from", "alice@sender.example", False)]),
        ("FROM:sender.example", [("from", "sender.example", False)]),
        ("-from:sender.example", [("from", "sender.example", True)]),
        ('subject:"Gift  Card" -tag:url.mismatch', [("subject", "gift card", False), ("tag", "url.mismatch", True)]),
        ("“gift card”", [("word", "gift card", False)]),
        ("invoice", [("word", "invoice", False)]),
        ("invoice invoice", [("word", "invoice", False)]),
        ("Björn", [("word", "bjorn", False)]),
        ("invoi*", [("word", "invoi", False)]),
        ("bjorn@", [("word", "bjorn@", False)]),
        ("bjorn@nord", [("word", "bjorn@nord", False)]),
        ("jane.doe", [("domain", "jane.doe", False)]),
        ("from:Björn", [("from", "bjorn", False)]),
        ("from:bjorn@nord", [("from", "bjorn@nord", False)]),
        ("to:bob", [("to", "bob", False)]),
        ("to:@nordlicht", [("to", "@nordlicht", False)]),
        ("<bob@acme.example>", [("address", "bob@acme.example", False)]),
        ("from:<Bob@acme.example>", [("from", "bob@acme.example", False)]),
        ("to:<bob@acme.example>", [("to", "bob@acme.example", False)]),
        ("from:<>", [("from", "<>", False)]),
        ("bob@acme.example", [("address", "bob@acme.example", False)]),
        ("192.0.2.7", [("ip", "192.0.2.7", False)]),
        ("192.0.2.0/24", [("ip", "192.0.2.0/24", False)]),
        ("ip:192.0.2.9/24", [("ip", "192.0.2.0/24", False)]),
        ("ip:::ffff:192.0.2.7", [("ip", "192.0.2.7", False)]),
        ("ip:2001:db8::1", [("ip", "2001:db8::1", False)]),
        ("ab" * 32, [("hash", "ab" * 32, False)]),
        (f"{GGRID}", [("ggrid", str(GGRID), False)]),
        ("evil[.]example", [("domain", "evil.example", False)]),
        ("hxxps://evil[.]example/login", [("url", "evil.example/login", False)]),
        ("url:https://user@EVIL.example:8443/a?b#c", [("url", "evil.example/a", False)]),
        ("url:10.0.0.1", [("url", "10.0.0.1", False)]),
        ("is:Held -is:reported", [("is", "held", False), ("is", "reported", True)]),
        ("verdict:spam,phishing", [("verdict", "spam,phishing", False)]),
        ('tenant:"acme ltd"', [("tenant", str(ACME), False)]),
        (f"tenant:{ACME}", [("tenant", str(ACME), False)]),
    ],
)
def test_terms_are_understood(text: str, expected: list[tuple[str, str, bool]]) -> None:
    assert conditions(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("form:alice", "Unknown operator `form:`."),
        ("hello from:", "`from:` needs a value after the colon"),
        ("hello from: alice", "(at character 7: `from:`)"),
        ("is:open", "`is:` needs one of held, released, reported, undecided"),
        ("verdict:bad", "`verdict:` needs one of malware, phishing"),
        ("decision:allow", "`decision:` needs one of undecided, deliver"),
        ("tag:mismatch", "`tag:` needs a tag such as url.display-mismatch"),
        ("ip:300.1.1.1", "`ip:` needs an IPv4 or IPv6 address"),
        ("ip:10.0.0.0/7", "is /16 or smaller"),
        ("ip:2001:db8::/31", "is /32 or smaller"),
        ("domain:localhost", "at least two labels"),
        ("to:bob..", "`to:` needs an address or a domain"),
        ("url:nothing", "`url:` needs a host or a URL"),
        ("hash:" + "ab" * 20, "History stores SHA-256 only"),
        ("hash:xyz", "`hash:` needs the SHA-256"),
        ("campaign:xyz", "`campaign:` needs the id of a campaign"),
        (f"ggrid:{UUID(int=1, version=4)}", "`ggrid:` needs the id of a guard request"),
        ("ggrid:1", "`ggrid:` needs the id of a guard request"),
        (f"tenant:{UUID(int=1, version=4)}", "no such tenant, or you may not see it"),
        ("tenant:other", "no such tenant, or you may not see it"),
        ("subject:in*oice", "are allowed at the end of a word only"),
        ('subject:"gift card', "quotation mark at character 9 is not closed"),
        ("subject:!!!", "needs a letter or a digit"),
        ("-", "needs a letter or a digit"),
        ("a" * (MAX_CHARACTERS + 1), "at most 500 characters"),
        (" ".join(f"word{number}" for number in range(21)), "at most 20 terms; this one has 21"),
    ],
)
def test_a_mistake_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidQuery) as raised:
        conditions(text)
    assert sentence in raised.value.message


def test_an_error_has_its_position() -> None:
    with pytest.raises(InvalidQuery, match=r"\(at character 6: `-colour:red`\)"):
        parse_query("from -colour:red")


def test_a_range_that_ends_before_it_begins_is_a_mistake() -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidQuery, match="ends before it begins"):
        parse_query("", since=now, until=now - timedelta(days=1))


@pytest.mark.parametrize(
    ("defanged", "whole"),
    [
        ("hxxps://evil[.]example", "https://evil.example"),
        ("a[at]b(dot)example", "a@b.example"),
        ("h**p[:]//evil{.}example", "http://evil.example"),
        ("fxp://evil.example", "ftp://evil.example"),
        ("[::1]", "[::1]"),
    ],
)
def test_defanged_values_are_restored(defanged: str, whole: str) -> None:
    assert refang(defanged) == whole


def sentence_of(text: str) -> str:
    """Return the sentence of a mistake, or "" where there is none."""
    try:
        assert isinstance(parse_query(text), Query)
    except InvalidQuery as error:
        return error.message
    return ""


@given(st.text(max_size=80))
def test_any_text_is_a_query_or_a_sentence(text: str) -> None:
    assert sentence_of(text).endswith(("", ".", ")"))


@given(st.sampled_from(sorted(OPERATORS)), st.text(max_size=60))
def test_any_value_is_a_condition_or_a_sentence(operator: str, value: str) -> None:
    text = f'{operator}:"{value}"'
    assert sentence_of(text) or parse_query(text).conditions
