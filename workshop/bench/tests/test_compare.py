"""The parts of `make compare` that need no server: what differs, the ratio, and what a way carries."""

import pytest

from workshop.bench.compare.answers import Difference, explained, replied
from workshop.bench.compare.figures import Turn, ratio_of
from workshop.bench.compare.messages import read_folders
from workshop.bench.compare.ways import result_fields
from workshop.rig.smtp_sender import as_smtp_carries

REASON = {
    "rule": "a.b",
    "verdict": "spam",
    "weight": 5,
    "summary": "Text.",
    "place": "Body",
    "tag": "x",
    "analyzer": "a",
}
EXPLANATION = {"ggrid": "1", "verdict": "spam", "decision": "quarantine", "tags": ["b", "a"], "reasons": [REASON]}


def test_an_answer_has_no_ids_and_no_order() -> None:
    assert explained(EXPLANATION) == explained({**EXPLANATION, "ggrid": "2", "tags": ["a", "b"]})
    assert replied(200, b'{"ggrid": "1", "created": "now", "tags": ["b", "a"]}') == {
        "status": ("200",),
        "answer tags": ["a", "b"],
    }
    assert replied(502, b"<html>") == {"status": ("502",), "answer body": ("<html>",)}


def test_a_difference_names_both_sides_of_each_field_that_differs() -> None:
    heavier = explained({**EXPLANATION, "reasons": [{**REASON, "weight": 6}]})
    difference = Difference("m.eml", "SMTP", explained(EXPLANATION), heavier)
    assert list(difference.lines()) == [
        "m.eml by SMTP",
        "  - reasons: a.b | spam | 5 | Text. | Body | x",
        "  + reasons: a.b | spam | 6 | Text. | Body | x",
    ]


def test_the_ratio_is_the_median_of_the_turns_with_an_interval() -> None:
    turns = [Turn({"guard": 2.0}, {"guard": 2.0 * ratio}) for ratio in (0.9, 1.0, 1.0, 1.1, 9.0)]
    ratio = ratio_of(turns, "guard")
    assert ratio.median == pytest.approx(1.0)
    assert 0.9 <= ratio.low <= 1.0 <= ratio.high <= 9.0
    assert ratio_of(turns, "guard") == ratio


def test_smtp_carries_whole_lines_and_returns_the_result_fields() -> None:
    assert as_smtp_carries(b"a: b\n\nx\0y\rz") == b"a: b\r\n\r\nxy\r\nz\r\n"
    delivered = (
        b"X-Mailwarden-Ggrid: 1\r\nX-Mailwarden-Tags: b\r\n\ta\r\nX-Mailwarden-Signature: v=1\r\nSubject: s\r\n\r\nbody"
    )
    assert result_fields(delivered) == ("1", {"X-Mailwarden-Tags": ["a", "b"]})


def test_a_sample_is_the_same_for_the_same_seed(tmp_path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.eml").write_bytes(b"From: <ann@a.example>\nTo: <bob@b.example>\n\ntext")
    first, _ = read_folders([tmp_path], 4, seed=3)
    again, _ = read_folders([tmp_path], 4, seed=3)
    assert first == again
    assert len(first) == 4
    assert first[0].border["envelopeFrom"] == "ann@a.example"
