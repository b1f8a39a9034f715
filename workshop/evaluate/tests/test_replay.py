"""Replay: messages in the order of time, with the memory of a deployment."""

from msgspec.structs import replace

from mailwarden.model.envelope import Envelope
from mailwarden.model.record import MessageSummary
from tests.samples.judged import policy_of, scanned
from workshop.evaluate.replay import DAYS, replay, replay_tables
from workshop.evaluate.trial import try_all


def sent(number, sender, *, label="ham", findings=()):
    record = scanned(label, *findings)
    sample = replace(record.sample, path=f"{number}.eml", corpus="c")
    return replace(
        record,
        sample=sample,
        sent=float(number),
        envelope=Envelope(sender, ("bob@company.example",)),
        summary=MessageSummary(1, "", from_address=sender),
    )


def names_by_path(replayed):
    return {each.judged.sample.path: each.judged.finding_names for each in replayed}


def test_a_usual_sender_becomes_known_and_a_new_one_is_noticed():
    records = [sent(number, "ann@shop.example") for number in range(300)]
    records += [sent(1000, "eve@new.example", label="phishing"), sent(1001, "ann@shop.example")]
    replayed = replay(records[::-1], policy_of())
    names = names_by_path(replayed)
    assert "relationship.first-contact" in names["1000.eml"]
    assert "relationship.known-sender" in names["1001.eml"]
    assert not names["0.eml"] & {"relationship.first-contact", "relationship.known-sender"}
    assert max(each.day for each in replayed) == DAYS - 1


def test_a_sender_of_held_mail_does_not_become_known():
    records = [sent(number, "eve@new.example", findings=["html.form"]) for number in range(300)]
    replayed = replay(records, policy_of(form=("phishing", 100)))
    assert "relationship.known-sender" not in set().union(*names_by_path(replayed).values())


def test_the_table_has_both_figures():
    records = [sent(number, "ann@shop.example") for number in range(10)]
    lines = list(replay_tables(try_all(records, policy_of()), replay(records, policy_of())))
    assert [line[40:49].strip() for line in lines[2:6]] == ["10", "10", "5", "5"]
    assert lines[6:] == ["messages of a domain that the deployment knows (domains.known-to-deployment): 0"]
