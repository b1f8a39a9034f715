"""The terms of a message: bounded, each once, and the same for what is asked and for what is kept."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.model.envelope import Envelope
from mailwarden.model.record import MessageSummary
from mailwarden.search.terms import MAX_TERMS, domain_and_parents, term_hash, term_hashes, terms_of
from tests.samples.finished import finished_request


def test_a_message_stands_under_every_one_of_its_values() -> None:
    assert {
        "verdict:phishing",
        "decision:quarantine",
        "from:alice@sender.example",
        "from:sender.example",
        "to:eve@acme.example",
        "to:acme.example",
        "ip:192.0.2.7/32",
        "ip:192.0.2.0/24",
        "ip:192.0.0.0/16",
        "tag:url.mismatch",
        "tag:policy.default-tenant",
        "subject:grüsse",
        "name:alice",
        "hash:" + "ab" * 32,
        "hash:" + "cd" * 32,
        "url:evil.example",
    } <= set(terms_of(finished_request()))


def test_a_domain_stands_under_its_parents_of_two_labels_and_more() -> None:
    assert list(domain_and_parents("a.b.c.example")) == ["a.b.c.example", "b.c.example", "c.example"]
    assert list(domain_and_parents("c.example")) == ["c.example"]
    assert list(domain_and_parents("10.0.0.1")) == ["10.0.0.1"]
    assert len(list(domain_and_parents(".".join("abcdefghijklmnopqrstuvwxyz")))) == 8


def test_a_term_is_the_number_that_the_migration_computes() -> None:
    # SELECT ('x' || left(encode(sha256('verdict:clean'), 'hex'), 16))::bit(64)::bigint
    assert term_hash("verdict:clean") == 6559190745712195598


def test_a_message_of_a_thousand_recipients_is_found_by_each_and_bounded() -> None:
    recipients = tuple(f"user{number}@acme{number}.example" for number in range(1_000))
    request = finished_request(envelope=Envelope("", recipients))
    found = terms_of(request)
    assert len(found) <= MAX_TERMS
    assert "to:user900@acme900.example" in found
    hosts = tuple(f"a.b.c.d.e.host{number}.example" for number in range(256))
    crowded = msgspec.structs.replace(request, summary=MessageSummary(1, "ab" * 32, url_hosts=hosts))
    assert len(terms_of(crowded)) == MAX_TERMS


@given(st.text(max_size=200), st.text(max_size=100), st.text(max_size=100))
def test_hostile_texts_make_terms_and_no_error(subject: str, address: str, host: str) -> None:
    summary = MessageSummary(1, "", from_address=address, from_name=subject, subject=subject, url_hosts=(host,))
    request = finished_request(summary=summary, envelope=Envelope(address, (address,), host))
    assert all(-(1 << 63) <= number < 1 << 63 for number in term_hashes(request))
