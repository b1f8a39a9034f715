"""Content that was not inspected: the verdicts and decisions of contract section 8."""

from uuid import UUID

import pytest

from mailwarden.message.coverage import Missed, MissedReason
from mailwarden.model.evidence import Evidence, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.place import Place
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.pipeline.worker_steps import _missed
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import for_tenant, load_policy, tenant_problems

TENANT = UUID(int=1)
POLICY = load_policy()
WARNED = {Profile.BALANCED: Decision.DELIVER, Profile.STRICT: Decision.QUARANTINE, Profile.MONITOR: Decision.DELIVER}


def evidence(*findings: Finding, failure: Failure | None = None) -> Evidence:
    return Evidence((Report("coverage", True, Status.FINISHED, 1.0, findings, failure),))


def missed(reason: MissedReason) -> Evidence:
    return evidence(
        _missed(Missed(Place(part="2", name="a.zip"), reason, "files" if reason is MissedReason.LIMIT else "", "why"))
    )


@pytest.mark.contract("8")
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("reason", MissedReason)
def test_missed_content_is_suspicious_and_decided_by_reason(reason, profile):
    judgement = judge(missed(reason), POLICY)
    ruling = decide(judgement, Assignment(TENANT, AssignedBy.DOMAINS, profile), POLICY)
    assert judgement.verdict is Verdict.SUSPICIOUS
    if reason is MissedReason.LIMIT:
        assert ruling.decision is Decision.QUARANTINE
        assert "analysis.structure-limit" in judgement.tags
    else:
        assert ruling.decision is WARNED[profile]
        encrypted = reason is MissedReason.ENCRYPTED
        assert f"analysis.{'encrypted' if encrypted else 'unreadable'}-content" in judgement.tags


@pytest.mark.contract("8")
def test_a_tenant_may_quarantine_encrypted_content_but_not_ignore_it():
    rule = "structure.encrypted-content"
    assert list(tenant_problems(POLICY, {rule: 100})) == []
    assert list(tenant_problems(POLICY, {rule: 0})) != []
    judgement = judge(missed(MissedReason.ENCRYPTED), for_tenant(POLICY, {rule: 100}))
    ruling = decide(judgement, Assignment(TENANT, AssignedBy.DOMAINS, Profile.BALANCED), POLICY)
    assert ruling.decision is Decision.QUARANTINE
    lowered = judge(missed(MissedReason.ENCRYPTED), for_tenant(POLICY, {rule: 0}))
    assert lowered.verdict is Verdict.SUSPICIOUS


@pytest.mark.contract("8")
def test_a_limit_of_clamav_is_undecided_unless_a_limit_of_ours_is_the_cause():
    unfinished = Failure("clamav", FailureKind.UNFINISHED, "ClamAV stopped at one of its own limits.")
    finding = Finding("clamav.limits-exceeded", facts={"signature": "Heuristics.Limits.Exceeded.MaxFiles"})
    assert judge(evidence(finding, failure=unfinished), POLICY).verdict is Verdict.UNKNOWN
    limit = _missed(Missed(Place(part="2", name="a.zip"), MissedReason.LIMIT, "files", "too many files"))
    judgement = judge(evidence(finding, limit, failure=unfinished), POLICY)
    assert judgement.verdict is Verdict.SUSPICIOUS
    assert judgement.forces_quarantine
