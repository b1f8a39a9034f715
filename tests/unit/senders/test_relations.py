"""Senders that differ from what a tenant knows are noticed; an unknown or young memory is no evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.model.record import MessageSummary
from mailwarden.senders.model import ContactStats
from mailwarden.senders.relations import (
    BUCKETS,
    KNOWN_AGE,
    KNOWN_DAYS,
    MAX_EDITED,
    MEMORY,
    RIPE_DAYS,
    findings_of,
    relation_of,
    relations_to_look_up,
    relations_to_store,
)

RIPE = {MEMORY: ContactStats(RIPE_DAYS, RIPE_DAYS, KNOWN_AGE)}
OWN = "dana@acme-works.example"
PARTNER = "robin@northbridge.example"


def relation(address, name="", reply="", recipients=(OWN,), *, free_mailbox=False):
    summary = MessageSummary(1, "", from_address=address, from_name=name, reply_to=reply)
    return relation_of(summary, recipients, free_mailbox=free_mailbox)


def memory_of(*relations, days=KNOWN_DAYS, age=KNOWN_AGE):
    """Return the memory after good messages of these relations on several days."""
    seen = dict(RIPE)
    for each in relations:
        for text in set(relations_to_store(each)) - {MEMORY}:
            before = seen.get(text, ContactStats())
            seen[text] = ContactStats(before.messages + days, before.days + days, age)
    return seen


def names(message, seen, *, new_sender=True, known_sender=False):
    asked = {text: seen[text] for text in relations_to_look_up(message) if text in seen}
    found = findings_of(message, asked, new_sender=new_sender, known_sender=known_sender)
    return {finding.name.removeprefix("relationship.") for finding in found}


def test_a_domain_is_new_until_one_of_its_addresses_wrote():
    seen = memory_of(relation(PARTNER), days=1, age=1)
    assert names(relation("eve@stranger.example"), seen) == {"first-seen-domain"}
    assert names(relation("other@northbridge.example"), seen) == set()
    assert names(relation("eve@mail.stranger.example"), memory_of(relation("eve@stranger.example"))) == {"known-domain"}


@pytest.mark.parametrize("young", [{}, {MEMORY: ContactStats(50, RIPE_DAYS - 1, 90)}, {MEMORY: ContactStats(50, 9, 9)}])
def test_a_young_memory_reports_no_new_domain(young):
    assert names(relation("eve@stranger.example"), young) == set()


def test_free_mailboxes_and_colleagues_have_no_new_domain():
    assert names(relation("eve@mailbox.example", free_mailbox=True), RIPE) == set()
    assert names(relation("eve@acme-works.example"), RIPE) == set()


@pytest.mark.parametrize(
    ("address", "finding"),
    [
        ("robin@northbrldge.example", "lookalike-domain"),
        ("robin@north-bridge.example", "lookalike-domain"),
        ("robin@xn--nrthbridge-evi.example", "lookalike-domain"),  # the second letter is Cyrillic
        ("robin@northbrigde.example", "similar-domain"),
        ("robin@northbridg.example", "similar-domain"),
        ("robin@northbridges.example", "similar-domain"),
        ("robin@nortbbridge.example", "similar-domain"),
        ("robin@northbridge.test", "other-tld"),
    ],
)
def test_a_lookalike_of_a_correspondent_is_noticed(address, finding):
    assert names(relation(address), memory_of(relation(PARTNER))) == {"first-seen-domain", finding, "impersonation"}


@pytest.mark.parametrize(
    "address", [PARTNER, "robin@southbridge.example", "robin@bridge.example", "robin@north.example"]
)
def test_other_names_are_no_lookalikes(address):
    assert names(relation(address), memory_of(relation(PARTNER))) <= {"first-seen-domain", "known-domain"}


def test_a_domain_of_a_few_days_is_not_imitated():
    seen = memory_of(relation(PARTNER), age=KNOWN_AGE - 1)
    assert names(relation("robin@northbrldge.example"), seen) == {"first-seen-domain"}


def test_harmless_messages_do_not_soon_make_a_lookalike_known():
    fake = relation("robin@northbrldge.example")
    seen = memory_of(relation(PARTNER))
    for text in set(relations_to_store(fake)) - {MEMORY}:
        before = seen.get(text, ContactStats())
        seen[text] = ContactStats(before.messages + 5, before.days + 5, max(before.age, 6))
    assert names(fake, seen, new_sender=False) == {"lookalike-domain", "impersonation"}


def test_two_known_similar_domains_are_both_known():
    both = relation("a@northbridge.example"), relation("b@northbridges.example")
    seen = memory_of(*both)
    assert [names(each, seen) for each in both] == [{"known-domain"}, {"known-domain"}]


def test_a_lookalike_of_the_own_domain_needs_no_memory():
    assert names(relation("it@acrne-works.example"), {}) == {"own-lookalike", "impersonation"}
    assert names(relation("it@acme-work.example"), {}) == {"own-lookalike", "impersonation"}
    assert names(relation("it@acme-works.example"), {}) == set()


@pytest.mark.parametrize("name", ["Robin Weaver", "Weaver, Robin", "RОBIN weaver", "Rob\u200bin  Weaver"])
def test_the_name_of_a_colleague_is_noticed_however_written(name):
    seen = memory_of(relation("robin@acme-works.example", "Robin Weaver"))
    assert "colleague-name" in names(relation("eve@mailbox.example", name, free_mailbox=True), seen)


def test_the_name_of_a_correspondent_from_elsewhere_is_noticed():
    seen = memory_of(relation(PARTNER, "Robin Weaver"))
    assert names(relation("r@mailbox.example", "Robin Weaver", free_mailbox=True), seen) == {
        "correspondent-name",
        "impersonation",
    }
    assert names(relation(PARTNER, "Robin Weaver"), seen) == {"known-domain"}
    assert names(relation("r@mailbox.example", "Robin", free_mailbox=True), seen) == set()


def test_a_known_second_mailbox_of_a_colleague_is_no_imitation():
    private = relation("robin@mailbox.example", "Robin Weaver", free_mailbox=True)
    seen = memory_of(relation("robin@acme-works.example", "Robin Weaver"), private)
    assert names(private, seen) == set()


def test_a_service_that_the_tenant_knows_may_write_in_a_colleagues_name():
    seen = memory_of(
        relation("robin@acme-works.example", "Robin Weaver"), relation("note@tracker.example", "Others Say")
    )
    assert names(relation("note@tracker.example", "Robin Weaver"), seen) == {"known-domain"}


def test_a_name_of_several_domains_belongs_to_none():
    seen = memory_of(*(relation(f"desk@shop{number}.example", "Service Team") for number in range(BUCKETS * 4)))
    assert names(relation("eve@mailbox.example", "Service Team", free_mailbox=True), seen) == set()


def test_a_known_sender_with_a_new_reply_address_is_noticed():
    seen = memory_of(relation(PARTNER, reply="desk@tickets.example"))
    known = {"new_sender": False, "known_sender": True}
    assert names(relation(PARTNER, reply="robin@mailbox.example"), seen, **known) == {"known-domain", "new-reply-to"}
    assert names(relation(PARTNER, reply="desk@tickets.example"), seen, **known) == {"known-domain"}
    assert names(relation(PARTNER, reply="other@northbridge.example"), seen, **known) == {"known-domain"}
    assert names(relation(PARTNER, reply="robin@mailbox.example"), seen) == {"known-domain"}


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=400))
def test_the_relations_of_any_message_are_bounded(address, name, reply):
    message = relation(address, name, reply)
    assert len(set(relations_to_look_up(message))) <= MAX_EDITED + BUCKETS + 8
    assert len(set(relations_to_store(message))) <= MAX_EDITED + 8
    list(findings_of(message, RIPE, new_sender=True, known_sender=True))
