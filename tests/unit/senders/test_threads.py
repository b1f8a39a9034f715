"""Answers to conversations that a tenant never had are noticed, where its memory can know."""

import pytest

from mailwarden.model.record import MessageSummary
from mailwarden.senders import threads
from mailwarden.senders.model import ContactStats
from mailwarden.senders.relations import KNOWN_AGE, RIPE_DAYS, relation_of
from mailwarden.senders.threads import MEMORY, findings_of, message, message_to_store, messages_to_look_up

RIPE = ContactStats(RIPE_DAYS, RIPE_DAYS, KNOWN_AGE)
OWN = "dana@acme-works.example"
SENT = "outward\0acme-works.example"
HERS, OURS, OTHERS = "<1@stranger.example>", "<2@acme-works.example>", "<3@prod.mailer.example>"


def answer(*references, sender="eve@stranger.example", answers=True, free_mailbox=False):
    summary = MessageSummary(1, "", from_address=sender, references=references)
    return relation_of(summary, (OWN,), free_mailbox=free_mailbox, answers=answers)


def noticed(relation, *known, sent=False, memory=RIPE, new_sender=True):
    seen = {MEMORY: memory, **({SENT: RIPE} if sent else {}), **{message(each): ContactStats(1, 1) for each in known}}
    asked = {*threads.relations_to_look_up(relation), *messages_to_look_up(relation)}
    seen = {text: stats for text, stats in seen.items() if text in asked}
    return [finding.name for finding in findings_of(relation, seen, new_sender=new_sender)] != []


def test_an_answer_to_messages_that_the_tenant_never_had_is_noticed():
    assert noticed(answer(HERS))
    assert noticed(answer(HERS, OTHERS), sent=True)
    assert noticed(answer())


def test_an_answer_to_a_remembered_message_is_not():
    assert not noticed(answer(HERS, OTHERS), HERS, sent=True)
    assert not noticed(answer("<1@stranger.example>"), " <1@stranger.example>\t")


def test_unscanned_outbound_mail_may_have_begun_the_conversation():
    assert not noticed(answer(OURS))
    assert not noticed(answer(HERS, OTHERS))
    assert not noticed(answer("<1@mailbox.example>", sender="eve@mailbox.example", free_mailbox=True))
    assert noticed(answer(OURS), sent=True)


@pytest.mark.parametrize("young", [ContactStats(), ContactStats(99, RIPE_DAYS - 1, 99), ContactStats(99, 9, 13)])
def test_a_young_memory_notices_nothing(young):
    assert not noticed(answer(HERS), memory=young)


def test_known_senders_colleagues_and_other_mail_are_not_compared():
    assert not noticed(answer(HERS), new_sender=False)
    assert not noticed(answer(HERS, sender="kim@acme-works.example"))
    assert not noticed(answer(HERS, answers=False))
    assert list(messages_to_look_up(answer(HERS, answers=False))) == []


def test_mail_to_other_domains_proves_that_outbound_mail_is_scanned():
    outbound = relation_of(MessageSummary(1, "", from_address=OWN), ("eve@stranger.example",), free_mailbox=False)
    internal = relation_of(MessageSummary(1, "", from_address=OWN), ("kim@acme-works.example",), free_mailbox=False)
    assert SENT in set(threads.relations_to_store(outbound))
    assert SENT not in set(threads.relations_to_store(internal))


@pytest.mark.parametrize("missing", ["", "<>", " "])
def test_a_message_without_an_id_is_not_remembered(missing):
    assert message_to_store(MessageSummary(1, "", message_id=missing)) == ""
