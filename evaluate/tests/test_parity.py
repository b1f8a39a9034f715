"""What `make parity` says of messages that are judged differently by different ways in."""

from evaluate.corpus import Sample, Submission
from evaluate.parity import print_differences
from mailwarden.model.envelope import Envelope

POSTED = Submission(Sample("dev/ham/one.eml", "ham", "own", "own"), b"", Envelope("", ("bob@corp.example",)))
CLEAN, SPAM = ("clean", "deliver"), ("spam", "quarantine", "spam.offer")


def test_messages_that_are_judged_the_same_are_counted(capsys):
    assert print_differences([POSTED, POSTED], [(CLEAN,) * 3, (SPAM,) * 3]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "clean 1, spam 1",
        "parity: 2 of 2 judged the same by SMTP, scanning API, /checkv2",
    ]


def test_a_different_verdict_is_shown_per_source(capsys):
    assert print_differences([POSTED], [(CLEAN, CLEAN, SPAM)]) == 1
    said = capsys.readouterr().out
    assert "dev/ham/one.eml\n    SMTP          clean deliver\n" in said
    assert "    /checkv2      spam quarantine spam.offer\n" in said
    assert "parity: 0 of 1 judged" in said


def test_a_message_that_none_of_them_judged_is_no_success():
    assert print_differences([POSTED], [(("not judged", "too large"),) * 3]) == 1
