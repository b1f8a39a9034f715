"""What proves good mail holds words and links within bounds, and nothing that convicts by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.errors import ConfigurationError
from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.policy.judge import RECOGNISED_BULK, judge
from mailwarden.policy.rules import CONVICTION, Policy, Rule, for_tenant, load_policy, make_policy
from tests.unit.policy.conftest import evidence, finished
from tests.unit.policy.test_judge import SHIPPED, rule
from tests.unit.policy.test_rules import odd, write

RULES = {each.id: each for each in SHIPPED.rules}
RESTRAINTS = [each for each in SHIPPED.rules if each.restrains]
# What no proof of good manners takes anything from.
HARD = (
    "html.credential-form",
    "lookalike.sender-domain",
    "lookalike.link-domain",
    "lookalike.link-brand-prefix",
    "lookalike.name-links",
    "rspamd.known-phishing-url",
    "rspamd.known-malware-url",
    "rspamd.lookalike-url",
    "rspamd.strong-spam",
    "rspamd.listed-url",
    "urls.spam-kit",
    "urls.userinfo",
    "urls.data-uri",
    "urls.percent-encoded-letters",
    "urls.open-redirect",
    "sender.homoglyph-name",
    "images.qr-unrelated-domain",
    "clamav.phishing",
    "lists.url-block",
    "lists.vip-impersonation",
    "yara.phishing",
)
NEWSLETTER = ("newsletter.one-click-unsubscribe", "newsletter.unsubscribe-link", "domains.sender-popular")
WORDS = (
    "lures.any",
    "lures.several",
    "lures.many",
    "lures.generic-greeting",
    "lures.deadline",
    "lures.prize",
    "lures.prize-often",
    "lures.account-trouble",
    "lures.verify-request",
    "lures.unrelated-links",
    "urls.one-unrelated-domain",
    "urls.click-tracking",
    "urls.button",
    "urls.recipient-address",
    "fraud.unexpected-money",
    "fraud.scam-wording",
    "fraud.scam-wording-often",
    "fraud.no-link",
    "fraud.gift-cards",
    "offers.any",
    "offers.many",
    "offers.casino-often",
    "offers.finance-offer",
    "offers.finance-offer-often",
    "wording.shouting",
    "wording.exclaiming",
)


def said(*names: str, policy: Policy = SHIPPED) -> Judgement:
    return judge(evidence(finished(*names)), policy)


def words(identity: str, weight: int, **more: object) -> Rule:
    return rule(identity, Verdict.PHISHING, weight, **more)


def restraint(identity: str, restrains: tuple[str, ...], cap: int, verdict: Verdict = Verdict.PHISHING) -> Rule:
    return rule(identity, verdict, 0, restrains=restrains, cap=cap, summary="it is proved")


def policy_of(*rules: Rule) -> Policy:
    return make_policy(rules, {}, SHIPPED.verdicts)


@pytest.mark.parametrize(
    ("restrains", "cap", "points"),
    [
        (("tested.a",), 30, 30 + 50 + 40),  # a rule
        (("content.urgency",), 30, 60 + 30 + 40),  # a tag
        (("tested",), 30, 30),  # an analyzer
        (("tested.a", "content.urgency"), 90, 90 + 40),
        (("tested.a",), 60, 150),  # what is within its bounds stays
        (("html",), 30, 150),
    ],
)
def test_rules_tags_and_analyzers_are_held_together(restrains, cap, points):
    rules = (words("a", 60), words("b", 50, tag="content.urgency"), words("c", 40), restraint("r", restrains, cap))
    judgement = said("tested.a", "tested.b", "tested.c", "tested.r", policy=policy_of(*rules))
    assert judgement.points[Verdict.PHISHING] == points
    reported = [reason for reason in judgement.reasons if reason.rule == "tested.r"]
    assert [reason.weight for reason in reported] == ([points - 150] if points < 150 else [])


def test_another_verdict_is_left_alone():
    rules = (words("a", 100), restraint("r", ("tested.a",), 30, Verdict.SPAM))
    assert said("tested.a", "tested.r", policy=policy_of(*rules)).points == {Verdict.PHISHING: 100}


def test_points_removed_by_a_narrow_restraint_count_once():
    rules = (
        words("link", 80),
        words("word", 120),
        restraint("narrow", ("tested.link",), 30),
        restraint("wide", ("tested.link", "tested.word"), 90),
    )
    judgement = said("tested.link", "tested.word", "tested.narrow", "tested.wide", policy=policy_of(*rules))
    assert judgement.points[Verdict.PHISHING] == 90
    assert {r.rule: r.weight for r in judgement.reasons if r.weight < 0} == {"tested.narrow": -50, "tested.wide": -60}


def test_overlapping_restraints_remove_points_once():
    """Else what is taken too much would be taken from what neither of them names."""
    rules = (
        words("link", 60),
        words("lure", 10),
        words("word", 10),
        words("form", 100),
        restraint("one", ("tested.link", "tested.lure"), 25),
        restraint("two", ("tested.link", "tested.word"), 25),
    )
    names = ("link", "lure", "word", "form", "one", "two")
    judgement = said(*(f"tested.{name}" for name in names), policy=policy_of(*rules))
    assert judgement.points[Verdict.PHISHING] >= 100
    assert judgement.verdict is Verdict.PHISHING


@given(st.sets(st.sampled_from(sorted({need for each in SHIPPED.rules for need in each.needs})), max_size=80))
def test_restraints_remove_at_most_the_points_of_their_rules(names):
    reported = said(*names, *NEWSLETTER, "authentication.aligned", "urls.own-links", "urls.mailing-service").reasons
    for verdict in {each.verdict for each in RESTRAINTS}:
        acting = [reason for reason in reported if reason.verdict is verdict and RULES[reason.rule].restrains]
        brought = sum(
            reason.weight
            for reason in reported
            if reason.verdict is verdict
            and reason.weight > 0
            and any(RULES[reason.rule].is_restrained_by(RULES[each.rule]) for each in acting)
        )
        assert brought + sum(reason.weight for reason in acting) >= 0


def test_a_restraint_that_a_tenant_lets_weigh_nothing_takes_nothing():
    easing = [each for each in RESTRAINTS if each.weight < 0]
    assert easing
    policy = for_tenant(SHIPPED, {each.id: 0 for each in easing})
    for each in easing:
        held = {need for other in SHIPPED.rules if other.is_restrained_by(each) for need in other.needs}
        reported = said(*held, *each.needs, policy=policy).reasons
        assert each.id not in {reason.rule for reason in reported if reason.weight}


@pytest.mark.parametrize(("weight", "points"), [(-25, 175), (-100, 100)])
def test_a_restraint_with_a_weight_takes_it_from_those_it_names_alone(weight, points):
    easing = rule("r", Verdict.PHISHING, weight, restrains=("tested.a",), summary="it is proved")
    policy = policy_of(words("a", 100), words("c", 100), easing)
    assert said("tested.a", "tested.c", "tested.r", policy=policy).points[Verdict.PHISHING] == points
    assert said("tested.c", "tested.r", policy=policy).points[Verdict.PHISHING] == 100


def test_easing_counts_beside_a_restraint():
    rules = (words("a", 200), words("good", -20), restraint("r", ("tested",), 90))
    assert said("tested.a", "tested.good", "tested.r", policy=policy_of(*rules)).points[Verdict.PHISHING] == 70


def test_a_newsletter_is_never_convicted_by_words_and_counted_links_together():
    loud = said(*WORDS)
    assert loud.verdict is Verdict.PHISHING
    assert all(loud.points[verdict] >= CONVICTION for verdict in (Verdict.PHISHING, Verdict.FRAUD, Verdict.SPAM))
    assert said(*WORDS, *NEWSLETTER).verdict is Verdict.SUSPICIOUS
    forged = said(*WORDS, *NEWSLETTER, "authentication.spf-fail")
    assert forged.verdict is Verdict.PHISHING


def test_no_single_word_more_convicts_a_newsletter():
    names = {need for each in SHIPPED.rules if each.verdict is not Verdict.MALWARE for need in each.needs}
    spoken = sorted(name for name in names if name.partition(".")[0] in {"lures", "offers", "wording"})
    assert said(*spoken).verdict is Verdict.PHISHING
    assert said(*spoken, *NEWSLETTER).verdict in {Verdict.SUSPICIOUS, Verdict.BULK}


@pytest.mark.parametrize("hard", HARD)
def test_hard_findings_count_fully_in_a_newsletter(hard):
    alone, beside = said(hard), said(hard, *NEWSLETTER, "authentication.aligned")
    assert max(alone.points.values()) > 0
    for verdict, points in alone.points.items():
        eased = sum(r.weight for r in beside.reasons if r.rule.startswith("newsletter.reduces-spam"))
        assert beside.points[verdict] - (eased if verdict == Verdict.SPAM else 0) == points


@pytest.mark.parametrize("hard", ["html.credential-form", "rspamd.known-phishing-url", "clamav.malware", "yara.fraud"])
def test_no_proof_lifts_a_conviction(hard):
    proofs = {need for each in RESTRAINTS for need in each.needs} - {RECOGNISED_BULK}
    assert said(hard, *proofs, *NEWSLETTER).verdict is said(hard).verdict


def test_a_lookalike_that_also_lures_is_convicted_in_a_newsletter():
    assert said(*WORDS, *NEWSLETTER, "lookalike.link-domain", "authentication.aligned").verdict is Verdict.PHISHING


UNKNOWN = (
    "newsletter.one-click-unsubscribe",
    "newsletter.unsubscribe-link",
    "domains.sender-unknown",
    "authentication.aligned",
)


def test_a_proof_eases_nothing_for_a_domain_that_is_not_known():
    assert (
        said("lures.several", *UNKNOWN, "urls.own-links").points[Verdict.PHISHING]
        == said("lures.several").points["phishing"]
    )
    reasons = said("offers.any", *UNKNOWN, "newsletter.own-links").reasons
    assert not [each for each in reasons if each.weight < 0 and each.verdict is not Verdict.BULK]


@pytest.mark.parametrize("proof", ["domains.sender-popular", "relationship.known-domain", "relationship.known-sender"])
def test_words_of_an_established_sender_weigh_little(proof):
    judgement = said(*(word for word in WORDS if word.startswith(("lures", "fraud"))), proof, "authentication.aligned")
    assert judgement.points[Verdict.PHISHING] <= 25
    assert judgement.points[Verdict.FRAUD] <= 20


def test_a_popular_domain_proves_nothing_without_authentication():
    assert said(*WORDS, "domains.sender-popular").points == said(*WORDS).points | {"spam": said(*WORDS).points["spam"]}


def test_an_unknown_domain_does_not_earn_bulk():
    form = ("newsletter.one-click-unsubscribe", "newsletter.unsubscribe-link", "newsletter.layout")
    assert said(*form, "domains.sender-popular").verdict is Verdict.BULK
    assert said(*form, "domains.sender-unknown").verdict is Verdict.CLEAN
    assert said(*form, "domains.sender-unknown", "relationship.known-domain").verdict is Verdict.BULK


@pytest.mark.parametrize("each", RESTRAINTS, ids=lambda each: each.id)
def test_a_restraint_needs_proof_and_keeps_hard_findings(each):
    assert each.weight < 0 or each.cap < CONVICTION
    assert {"newsletter.layout", "authentication.aligned", "rspamd.discussion-list", RECOGNISED_BULK} & set(each.needs)
    held = {other.id for other in SHIPPED.rules if other.is_restrained_by(each)}
    assert held, "it restrains nothing"
    needs = {other.id for other in SHIPPED.rules if set(other.needs) & set(HARD)} & held
    assert needs <= {"lures.strong-spam", "urls.one-unrelated-domain-strong-spam"}


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"more": "restrains: [nobody]"}, "restrains `nobody`, which is no rule, tag or analyzer"),
        ({"weight": 5, "more": "restrains: [odd]"}, "belongs to rules that ease or weigh nothing"),
        ({"verdict": "malware", "weight": 0, "more": "restrains: [odd]"}, "nothing restrains `malware`"),
    ],
)
def test_a_restraint_that_cannot_act_stops_the_start(tmp_path, changes, reported):
    write(tmp_path, odd(**({"weight": 0} | changes)))
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path)
    assert reported in caught.value.message


def test_a_change_of_bank_details_that_can_be_checked_is_not_held():
    said = ("fraud.bank-change", "fraud.no-link", "fraud.short-note", "authentication.aligned", "sender.name-related")
    assert judge(evidence(finished(*said)), SHIPPED).verdict is Verdict.FRAUD
    assert judge(evidence(finished(*(*said, "fraud.verifiable-bank-change"))), SHIPPED).verdict is Verdict.SUSPICIOUS
    pressing = (*said, "fraud.verifiable-bank-change", "fraud.urgency")
    assert judge(evidence(finished(*pressing)), SHIPPED).verdict is Verdict.FRAUD


def test_a_report_about_blackmail_is_clean_unless_it_names_an_address_for_coins():
    said = ("fraud.extortion-recording", "fraud.extortion-threat", "fraud.bitcoin-payment", "authentication.aligned")
    assert judge(evidence(finished(*said)), SHIPPED).verdict is Verdict.FRAUD
    report = (*said, "fraud.extortion-discussion")
    assert judge(evidence(finished(*report)), SHIPPED).verdict is Verdict.CLEAN
    assert judge(evidence(finished(*(*report, "fraud.bitcoin-address"))), SHIPPED).verdict is Verdict.FRAUD
