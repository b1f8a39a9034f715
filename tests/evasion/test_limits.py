"""Every limit of the table has a message beyond it, and that message is never `clean`.

The limits are found in the table itself: a field that is added without a case here fails.
"""

import pytest
from msgspec.structs import fields, replace

from mailwarden.message.limits import LIMITS, Limits
from mailwarden.model.evidence import Evidence
from mailwarden.model.observables import Observable
from mailwarden.model.outcome import Verdict
from mailwarden.pipeline.registry import YARA
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from tests.evasion.beyond import BEYOND

RULE = 'rule limit_test { strings: $a = "mailwarden-limit-test" condition: $a }'
FIELDS = [field.name for field in fields(Limits)]


@pytest.fixture(autouse=True, scope="module")
def own_rules(tmp_path_factory):
    """Give the workers' analyzer a rule of an operator, so that its limit can be reached."""
    folder = tmp_path_factory.mktemp("yara")
    (folder / "limit.yar").write_text(RULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YARA, "_scanner", None)
        assert YARA.load(folder) == ()
        yield


def examined(raw: bytes, limits: Limits = LIMITS) -> Evidence:
    return Evidence(tuple(frame.report for frame in run_steps(Job(raw, wanted=tuple(Observable)), limits)))


@pytest.mark.contract("8")
def test_every_limit_has_a_message_beyond_it():
    assert set(BEYOND) == set(FIELDS)


@pytest.mark.contract("8")
@pytest.mark.parametrize("limit", FIELDS)
def test_a_message_beyond_the_limit_is_quarantined_for_it(limit):
    case = BEYOND[limit]
    evidence = examined(case.make(), replace(LIMITS, **case.limits))
    assert not evidence.failures
    reached = {finding.facts["limit"] for _, finding in evidence.findings if finding.name == "structure.limit"}
    assert limit in reached or {"long_header": "header", "ratio_from": "ratio"}.get(limit) in reached
    judgement = judge(evidence, load_policy())
    assert judgement.verdict is not Verdict.CLEAN
    assert judgement.forces_quarantine


@pytest.mark.contract("8")
@pytest.mark.parametrize("limit", FIELDS)
def test_the_same_message_within_the_limits_is_no_limit(limit):
    evidence = examined(BEYOND[limit].make())
    assert [finding for _, finding in evidence.findings if finding.name == "structure.limit"] == []
