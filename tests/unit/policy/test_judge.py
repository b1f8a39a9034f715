"""The verdict follows from the evidence: in order, never clean when incomplete, whatever order findings come in."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.place import WHOLE_MESSAGE, Place
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import CONVICTIONS, REASONS_PER_RULE, judge
from mailwarden.policy.rules import TAG_FORM, Policy, Rule, Severity, VerdictRow, load_policy, make_policy
from tests.samples.judged import missing_required
from tests.unit.policy.conftest import evidence, failed, finished

SHIPPED = load_policy()
FINDINGS = sorted(
    {name for rule in SHIPPED.rules for name in (*rule.needs, *rule.any_of, *rule.unless)} | {"nobody.knows-this"}
)
TENANT = UUID(int=1)


def rule(identity: str, verdict: Verdict, weight: int, **more) -> Rule:
    fields = {"when": f"tested.{identity}", "summary": "it is {what}", "severity": Severity.LOW, **more}
    return Rule(
        id=f"tested.{identity}",
        name="n",
        description="d",
        verdict=verdict,
        weight=weight,
        false_positives="f",
        topic=f"text.{identity}",
        **fields,
    )


def policy_of(*rules: Rule) -> Policy:
    return make_policy(rules, {}, SHIPPED.verdicts)


def test_verdicts_are_considered_in_the_order_of_the_contract():
    rules = [rule(verdict.value, verdict, 100) for verdict in CONVICTIONS]
    for position, verdict in enumerate(CONVICTIONS):
        names = [f"tested.{later}" for later in CONVICTIONS[position:]]
        assert judge(evidence(finished(*reversed(names))), policy_of(*rules)).verdict is verdict


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [
        ({Verdict.SPAM: 99}, Verdict.CLEAN),
        ({Verdict.SPAM: 100}, Verdict.SPAM),
        ({Verdict.PHISHING: 49}, Verdict.CLEAN),
        ({Verdict.PHISHING: 50}, Verdict.SUSPICIOUS),
        ({Verdict.PHISHING: 20, Verdict.SPOOF: 20, Verdict.MALWARE: 10}, Verdict.SUSPICIOUS),
        ({Verdict.PHISHING: 99}, Verdict.SUSPICIOUS),
        ({Verdict.SUSPICIOUS: 100}, Verdict.SUSPICIOUS),
        ({Verdict.SPAM: 60, Verdict.BULK: 60}, Verdict.CLEAN),
        ({Verdict.BULK: 100}, Verdict.BULK),
        ({Verdict.BULK: 100, Verdict.FRAUD: 50}, Verdict.SUSPICIOUS),
        ({Verdict.PHISHING: 50, Verdict.SPOOF: -50}, Verdict.SUSPICIOUS),
        ({}, Verdict.CLEAN),
    ],
)
def test_points_become_a_verdict(weights, verdict):
    rules = [rule(name.value, name, weight) for name, weight in weights.items()]
    found = judge(evidence(finished(*(f"tested.{name}" for name in weights))), policy_of(*rules))
    assert found.verdict is verdict
    assert found.points == {name.value: weight for name, weight in weights.items()}


def test_no_findings_is_clean_with_a_summary(policy):
    found = judge(evidence(finished(), finished(analyzer="b")), policy)
    assert found.summary == "Clean: no points against it."


def test_malware_has_a_one_sentence_summary(policy):
    found = judge(evidence(finished("clamav.malware", signature="Eicar")), policy)
    assert found.verdict is Verdict.MALWARE
    assert found.summary == "Malware: ClamAV detected Eicar."
    assert found.reasons[0].summary == "ClamAV detected Eicar."
    assert found.tags == ("threat.malware",)


def test_a_required_analyzer_that_failed_leaves_the_verdict_unknown(policy):
    found = judge(evidence(finished(), failed(sentence="Rspamd did not answer within 20 s.")), policy)
    assert found.verdict is Verdict.UNKNOWN
    assert found.incomplete
    assert found.tags == ("analysis.incomplete",)
    assert found.summary == "Not decided: Rspamd did not answer within 20 s, and nothing else is enough for a verdict."


def test_an_optional_analyzer_that_failed_does_not_matter(policy):
    found = judge(evidence(finished(), failed("extra", required=False)), policy)
    assert (found.verdict, found.incomplete) == (Verdict.CLEAN, False)
    assert found.summary == "Clean: no points against it; 1 of 2 analyzers finished."


def test_a_conviction_never_waits_for_a_failed_analyzer(policy):
    found = judge(evidence(finished("clamav.malware"), failed()), policy)
    assert found.verdict is Verdict.MALWARE
    assert found.tags == ("analysis.incomplete", "threat.malware")


def test_no_report_at_all_is_unknown_and_never_clean(policy):
    assert judge(evidence(), policy).verdict is Verdict.UNKNOWN


def test_a_required_analyzer_that_was_skipped_without_a_limit_is_missing(policy):
    skipped = Report("rspamd", True, Status.SKIPPED, 0.0)
    assert judge(evidence(finished(), skipped), policy).verdict is Verdict.UNKNOWN


def test_a_structure_limit_is_suspicious_and_forces_quarantine(policy):
    skipped = Report("rspamd", True, Status.SKIPPED, 0.0)
    found = judge(evidence(finished("structure.limit", sentence="1,001 parts"), skipped), policy)
    assert (found.verdict, found.forces_quarantine, found.incomplete) == (Verdict.SUSPICIOUS, True, False)
    assert found.tags == ("analysis.structure-limit",)
    assert found.summary == "Suspicious: beyond a limit, so not read whole: 1,001 parts."


def test_a_limit_below_suspicion_or_beside_a_failed_analyzer_is_still_suspicious():
    light = policy_of(rule("a", Verdict.SUSPICIOUS, 0, forces_quarantine=True))
    assert judge(evidence(finished("tested.a")), light).verdict is Verdict.SUSPICIOUS
    found = judge(evidence(finished("tested.a"), failed()), light)
    assert (found.verdict, found.forces_quarantine) == (Verdict.SUSPICIOUS, True)
    assert found.tags == ("analysis.incomplete",)


def test_a_repeated_rule_counts_once():
    found = judge(evidence(finished(*["tested.a"] * 9)), policy_of(rule("a", Verdict.PHISHING, 30)))
    assert found.points == {"phishing": 30}
    assert len(found.reasons) == REASONS_PER_RULE


def test_a_rule_may_count_each_finding_up_to_its_cap():
    each = rule("a", Verdict.PHISHING, 30, counts="each", cap=70)
    assert judge(evidence(finished("tested.a", "tested.a")), policy_of(each)).points == {"phishing": 60}
    assert judge(evidence(finished(*["tested.a"] * 4)), policy_of(each)).points == {"phishing": 70}


def test_easing_evidence_counts_once():
    easing = rule("a", Verdict.SPAM, -30)
    assert judge(evidence(finished("tested.a", "tested.a")), policy_of(easing)).points == {"spam": -30}


def test_a_rule_with_several_findings_needs_all_and_shows_their_facts():
    both = rule("a", Verdict.PHISHING, 60, when=("tested.a", "tested.b"), summary="both {one} and {two}")
    assert judge(evidence(finished("tested.a", one="x")), policy_of(both)).reasons == ()
    found = judge(evidence(finished("tested.b", two="y"), finished("tested.a", one="x")), policy_of(both))
    assert [reason.summary for reason in found.reasons] == ["Both x and y."]


def test_a_finding_may_silence_a_rule():
    silenced = rule("a", Verdict.PHISHING, 60, unless=("tested.b",))
    assert judge(evidence(finished("tested.a", "tested.b")), policy_of(silenced)).points == {}


def test_a_rule_may_need_one_of_several_findings():
    either = rule("a", Verdict.PHISHING, 60, any_of=("tested.b", "tested.c"))
    assert judge(evidence(finished("tested.a")), policy_of(either)).points == {}
    assert judge(evidence(finished("tested.a", "tested.c")), policy_of(either)).points == {"phishing": 60}


LEARNED = rule("learned", Verdict.SPAM, 60, joins_leading=True)
FINE = rule("fine", Verdict.SPAM, -40, joins_leading=True)


@pytest.mark.parametrize(
    ("found", "points", "verdict"),
    [
        (("learned",), {"spam": 60}, Verdict.CLEAN),  # alone it convicts nobody
        (("learned", "phish"), {"phishing": 105}, Verdict.PHISHING),
        (("learned", "phish", "cheat"), {"phishing": 105, "fraud": 40}, Verdict.PHISHING),
        (("learned", "cheat"), {"fraud": 100}, Verdict.FRAUD),
        (("learned", "virus"), {"spam": 60, "malware": 100}, Verdict.MALWARE),
        (("fine", "virus"), {"spam": -40, "malware": 100}, Verdict.MALWARE),  # nothing eases malware
        (("fine", "sure"), {"phishing": 100}, Verdict.PHISHING),  # and no conviction is lifted by it
        (("fine", "sure", "phish"), {"phishing": 105}, Verdict.PHISHING),
        (("fine", "phish"), {"phishing": 5}, Verdict.CLEAN),
        (("fine",), {"spam": -40}, Verdict.CLEAN),
    ],
)
def test_learned_findings_count_for_the_leading_verdict(found, points, verdict):
    rules = [
        rule("phish", Verdict.PHISHING, 45),
        rule("cheat", Verdict.FRAUD, 40),
        rule("virus", Verdict.MALWARE, 100),
        rule("sure", Verdict.PHISHING, 100),
    ]
    names = [f"tested.{name}" for name in found]
    judgement = judge(evidence(finished(*names)), policy_of(*rules, LEARNED, FINE))
    assert (judgement.points, judgement.verdict) == (points, verdict)


def test_learned_findings_neither_convict_nor_clear_alone():
    rules = [each for each in SHIPPED.rules if each.id.startswith("learned.")]
    assert all(each.joins_leading for each in rules)
    for name in sorted({need for each in rules for need in each.needs}):
        assert judge(evidence(finished(name)), SHIPPED).verdict is Verdict.CLEAN
        convicted = judge(evidence(finished(name, "clamav.malware", "html.credential-form", "tested.a")), SHIPPED)
        assert convicted.verdict is Verdict.MALWARE
        assert -60 <= sum(each.weight for each in rules if name in each.needs) <= 60


def test_the_sentence_counts_the_other_rules_that_agree():
    rules = [rule("a", Verdict.SPAM, 40), rule("b", Verdict.SPAM, 60)]
    found = judge(evidence(finished("tested.a", "tested.b", what="odd")), policy_of(*rules))
    assert found.summary == "Spam: it is odd (1 more reason)."


HOSTILE = st.text("a.{}|\n\x00\u202eé", max_size=12)
facts = st.dictionaries(
    st.sampled_from(["name", "signature", "sentence", "host", "place"]),
    st.one_of(HOSTILE, st.integers(-9, 9), st.booleans(), st.floats(-9, 9)),
    max_size=3,
)
findings = st.builds(
    Finding, st.sampled_from(FINDINGS), st.sampled_from([WHOLE_MESSAGE, Place(part="1"), Place(part="2")]), facts
)


@st.composite
def reports(draw) -> Report:
    status = draw(st.sampled_from(Status))
    analyzer = draw(st.sampled_from(["a", "b", "c"]))
    failure = Failure(analyzer, draw(st.sampled_from(FailureKind)), draw(HOSTILE))
    found = tuple(draw(st.lists(findings, max_size=4)))
    return Report(analyzer, draw(st.booleans()), status, 1.0, found, failure if status is Status.FAILED else None)


evidences = st.builds(lambda items: Evidence(tuple(items)), st.lists(reports(), max_size=5))


@given(evidences, st.sampled_from(Profile), st.sampled_from(AssignedBy), st.booleans())
def test_an_incomplete_analysis_is_never_clean_and_never_delivered(gathered, profile, by, session_open):
    found = judge(gathered, SHIPPED)
    ruling = decide(found, Assignment(TENANT, by, profile), SHIPPED, session_open=session_open)
    if missing_required(gathered):
        forced = found.verdict is Verdict.SUSPICIOUS and found.forces_quarantine
        assert found.verdict in CONVICTIONS or forced or found.verdict is Verdict.UNKNOWN
        assert "analysis.incomplete" in found.tags
        assert ruling.decision is not Decision.DELIVER
    if found.verdict is Verdict.CLEAN:
        assert all(report.status is Status.FINISHED for report in gathered.reports if report.required)


@pytest.mark.slow
@given(evidences)
def test_tags_are_sorted_unique_well_formed_and_in_the_catalogue(gathered):
    tags = judge(gathered, SHIPPED).tags
    assert list(tags) == sorted(set(tags))
    assert all(TAG_FORM.match(tag) and tag in SHIPPED.tags for tag in tags)


@pytest.mark.slow
@given(evidences)
def test_points_are_the_sum_of_the_reasons(gathered):
    found = judge(gathered, SHIPPED)
    for verdict in Verdict:
        weights = [reason.weight for reason in found.reasons if reason.verdict is verdict]
        assert sum(weights) == found.points.get(verdict, 0)


@pytest.mark.slow
@given(evidences)
def test_stored_evidence_gives_the_same_judgement_again(gathered):
    stored = msgspec.json.decode(msgspec.json.encode(gathered), type=Evidence)
    found = judge(gathered, SHIPPED)
    assert judge(stored, SHIPPED) == found
    assert msgspec.json.decode(msgspec.json.encode(found), type=Judgement) == found


@given(evidences, st.randoms())
def test_the_order_of_reports_and_findings_does_not_matter(gathered, random):
    shuffled = []
    for report in random.sample(gathered.reports, len(gathered.reports)):
        shuffled.append(replace(report, findings=tuple(random.sample(report.findings, len(report.findings)))))
    first, second = judge(gathered, SHIPPED), judge(Evidence(tuple(shuffled)), SHIPPED)
    assert replace(first, summary="") == replace(second, summary="")
    if not gathered.failures:
        assert first.summary == second.summary


def test_every_verdict_has_its_row():
    assert set(SHIPPED.verdicts) == set(Verdict)
    assert all(isinstance(row, VerdictRow) for row in SHIPPED.verdicts.values())
