"""What an engine is shown of a message that can be read in several ways: all of its parts, or it is held."""

from collections.abc import Sequence

import pytest

from mailwarden.message.limits import LIMITS, Limits
from mailwarden.model.evidence import Evidence, Report
from mailwarden.model.outcome import Verdict
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from tests.unit.files.makers import mail_with, written, yencoded
from workshop.torture.bombs import packed

SCRIPT = b"WScript.Echo('x')" * 3
TWICE = b"--b\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n\r\nhello\r\n"  # readers take one or the other


def message(parts: Sequence[bytes], *, ambiguous: bool = True) -> bytes:
    head = b"From: ada@north.example\r\nSubject: figures\r\nMIME-Version: 1.0\r\n"
    body = b"".join(b"--b\r\nContent-Type: application/octet-stream\r\n\r\n" + part + b"\r\n" for part in parts)
    opening = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + (TWICE if ambiguous else b"")
    return head + opening + body + b"--b--\r\n"


def look(raw: bytes, limits: Limits = LIMITS) -> tuple[tuple[bytes, ...], list[Report]]:
    frames = list(run_steps(Job(raw), limits))
    return next((frame.contents for frame in frames if frame.contents), ()), [frame.report for frame in frames]


def held(reports: list[Report]) -> bool:
    judgement = judge(Evidence(tuple(reports)), load_policy())
    return judgement.forces_quarantine and judgement.verdict is Verdict.SUSPICIOUS


def test_every_part_is_shown():
    parts = [b"part %d" % number for number in range(120)]
    contents, reports = look(message(parts))
    assert set(parts) <= {content.strip() for content in contents}
    assert not held(reports)


@pytest.mark.parametrize("limits", [Limits(engine_contents=3), Limits(engine_bytes=30)])
def test_a_message_with_more_than_can_be_shown_is_held(limits: Limits):
    parts = [b"part %d is long" % number for number in range(5)]
    contents, reports = look(message(parts), limits)
    assert len(contents) < 5
    assert held(reports)


def test_the_same_part_is_shown_once():
    contents, reports = look(message([b"the same"] * 50), Limits(engine_contents=3))
    assert len(contents) <= 3
    assert not held(reports)


def test_a_message_that_all_read_alike_is_not_held_for_its_parts():
    parts = [b"part %d" % number for number in range(9)]
    contents, reports = look(message(parts, ambiguous=False), Limits(engine_contents=3))
    assert not contents
    assert not held(reports)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.zip", written("zip", {"run.js": SCRIPT}, options="zip:encryption=aes256", password="autumn7")),
        ("a.txt", yencoded(b"run.js", SCRIPT)),
        ("a.tar.zst", written("ustar", {"run.js": SCRIPT}, "zstd")),
    ],
)
def test_files_that_an_engine_cannot_unpack_are_shown_to_it(name: str, content: bytes):
    raw = mail_with((name, content), body=b"<p>The password is autumn7</p>")
    frames = list(run_steps(Job(raw)))
    assert SCRIPT in [content for frame in frames for content in frame.contents]


def test_files_that_an_engine_unpacks_itself_are_not_shown_again():
    frames = list(run_steps(Job(mail_with(("a.zip", packed({"run.js": SCRIPT}))))))
    assert not any(frame.contents for frame in frames)


def test_more_hidden_files_than_can_be_shown_are_recorded():
    text = b"".join(yencoded(b"%d.txt" % number, b"file %d" % number) for number in range(9))
    assert held([frame.report for frame in run_steps(Job(mail_with(("a.txt", text))), Limits(engine_contents=3))])
