"""Lures in other languages than English are held from a stranger, and their honest likenesses are not."""

from pathlib import Path
from uuid import UUID

import pytest

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Decision
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy

SAMPLES = Path(__file__).parents[2] / "analyzers" / "lures"


def decided(name: str) -> Decision:
    raw = (SAMPLES / f"{name}.eml").read_bytes()
    envelope = Envelope("post@north.example", ("bob@south.example",), "203.0.113.77", "mail.example")
    evidence = Evidence(tuple(frame.report for frame in run_steps(Job(raw, envelope=envelope))))
    assignment = Assignment(UUID(int=1), AssignedBy.REQUEST, Profile.BALANCED)
    return decide(judge(evidence, load_policy()), assignment, load_policy()).decision


@pytest.mark.parametrize("name", ["blocked-spanish", "mailbox-dutch", "refund-dutch", "voicemail-dutch"])
def test_a_lure_with_an_unrelated_link_is_held(name):
    assert decided(name) is Decision.QUARANTINE


@pytest.mark.parametrize("name", ["pay-day-german", "reminder-italian", "season-ticket-french"])
def test_a_notice_of_the_same_things_is_delivered(name):
    assert decided(name) is Decision.DELIVER
