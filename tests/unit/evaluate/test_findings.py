"""The comparison of two versions, message by message."""

from pathlib import Path

import pytest

from evaluate.findings import Examined, compare, record

PLAIN = b"From: a@a.example\r\nTo: b@b.example\r\nSubject: Minutes\r\n\r\nThe minutes follow.\r\n"


X, Y = '["a",[{"name":"x","facts":{}}]]', '["a",[{"name":"y"}]]'
SAME = '["a",[{"name":"x"}]]'  # as X, without the field that has no value


def of(*examined: Examined) -> list[Examined]:
    return [*examined]


def test_the_same_findings_and_verdicts_are_no_difference(capsys: pytest.CaptureFixture[str]):
    before = of(Examined("a.eml", (X,), "clean", 2.0), Examined("b.eml", (), "clean", 4.0))
    after = of(Examined("a.eml", (SAME,), "clean", 1.0), Examined("b.eml", (), "clean", 2.0))
    assert compare(before, after) == 0
    shown = capsys.readouterr().out
    assert "after to before: median 0.50" in shown
    assert "2 messages, 0 with other findings" in shown


@pytest.mark.parametrize(
    "after",
    [
        of(Examined("a.eml", (Y,), "clean", 1.0)),
        of(Examined("a.eml", (X,), "spam", 1.0)),
        of(Examined("b.eml", (X,), "clean", 1.0)),
        of(Examined("a.eml", (X,), "clean", 1.0), Examined("b.eml", (), "clean", 1.0)),
    ],
    ids=["another finding", "another verdict", "another message", "one message more"],
)
def test_a_difference_is_printed_and_is_a_failure(after: list[Examined], capsys: pytest.CaptureFixture[str]):
    assert compare(of(Examined("a.eml", (X,), "clean", 1.0)), after) == 1
    assert " -> " in capsys.readouterr().out


def test_messages_of_a_folder_are_recorded_with_findings_and_verdict(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "plain.eml").write_bytes(PLAIN)
    results = record([tmp_path])
    assert [one.name for one in results] == [f"{tmp_path.name}/inner/plain.eml"]
    assert any("structure" in finding for finding in results[0].findings)
