"""Relations strengthen other suspicion and seldom convict alone; a known domain eases words and nothing else."""

import pytest

from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import CONVICTION
from tests.unit.policy.conftest import evidence, finished
from tests.unit.policy.test_judge import SHIPPED

RELATIONS = sorted(
    {name for rule in SHIPPED.rules for name in rule.needs if name.startswith("relationship.")}
    - {"relationship.known-sender", "relationship.known-domain"}
)
IMITATION = ("relationship.lookalike-domain", "relationship.impersonation", "relationship.first-seen-domain")
KNOWN = ("relationship.known-domain", "authentication.aligned")


def judged(*names: str) -> Judgement:
    return judge(evidence(finished(*names)), SHIPPED)


@pytest.mark.parametrize("name", RELATIONS)
def test_no_relation_convicts_alone(name: str) -> None:
    assert judged(name).verdict in {Verdict.CLEAN, Verdict.SUSPICIOUS}


def test_a_new_domain_alone_is_clean() -> None:
    assert judged("relationship.first-seen-domain", "relationship.first-contact").verdict is Verdict.CLEAN
    assert judged("relationship.colleague-name", "relationship.impersonation").verdict is Verdict.CLEAN


@pytest.mark.parametrize("request_", ["fraud.bank-change", "fraud.transfer-request", "fraud.gift-cards"])
def test_a_lookalike_that_asks_for_money_is_fraud(request_: str) -> None:
    assert judged(*IMITATION, request_).verdict is Verdict.FRAUD


def test_a_known_domain_eases_words_only_with_authentication() -> None:
    words = (
        "lures.any",
        "lures.several",
        "lures.many",
        "lures.generic-greeting",
        "lures.deadline",
        "lures.account-trouble",
    )
    plain, eased = (
        judged(*words).points.get(Verdict.PHISHING, 0),
        judged(*words, *KNOWN).points.get(Verdict.PHISHING, 0),
    )
    assert eased < CONVICTION
    assert eased <= plain
    unproved = judged(*words, KNOWN[0]).points.get(Verdict.PHISHING, 0)
    assert unproved == plain


@pytest.mark.parametrize(
    "hard", ["html.credential-form", "urls.spam-kit", "urls.userinfo", "images.qr-unrelated-domain"]
)
def test_a_known_domain_eases_no_links_and_forms(hard: str) -> None:
    assert judged(hard, *KNOWN).points[Verdict.PHISHING] >= judged(hard, KNOWN[1]).points[Verdict.PHISHING]


THREAD = ("relationship.unknown-thread", "relationship.first-contact")
ACCOUNT = ("relationship.new-bank-account", "relationship.known-domain", "authentication.aligned", "fraud.bank-account")


@pytest.mark.parametrize("request_", ["fraud.bank-change", "fraud.gift-cards", "html.credential-form"])
def test_an_unknown_conversation_is_weak_alone_and_convicts_with_a_request(request_: str) -> None:
    assert judged(*THREAD).verdict is Verdict.CLEAN
    assert judged(*THREAD, "relationship.first-seen-domain", "domains.sender-unknown").verdict is Verdict.CLEAN
    assert judged(*THREAD, request_).verdict is not Verdict.CLEAN
    assert judged(*THREAD, request_, *IMITATION).verdict in {Verdict.FRAUD, Verdict.PHISHING}


def test_a_new_account_of_a_known_partner_is_fraud_only_with_words_of_a_change() -> None:
    """The mailbox of the partner may be taken over: its authentication proves nothing about the account."""
    assert judged(*ACCOUNT).verdict is Verdict.CLEAN
    assert judged(*ACCOUNT, "fraud.invoice-due").verdict is Verdict.CLEAN
    assert judged(*ACCOUNT, "fraud.transfer-request").verdict is Verdict.SUSPICIOUS
    assert judged(*ACCOUNT, "fraud.bank-change").verdict is Verdict.FRAUD
    assert judged(ACCOUNT[0], "fraud.transfer-request", "fraud.invoice-due").verdict is Verdict.FRAUD
    assert judged(*IMITATION, "relationship.impersonation-bank-account").verdict is Verdict.FRAUD


def test_a_domain_known_to_the_deployment_eases_no_lure_and_no_request() -> None:
    """An attacker can earn it with three weeks of harmless mail."""
    here = ("domains.known-to-deployment", "authentication.aligned")
    offer = ("domains.sender-unknown", "offers.any", "urls.image-only")
    assert judged(*offer, *here).points.get(Verdict.SPAM, 0) < judged(*offer, here[1]).points.get(Verdict.SPAM, 0)
    for name in ("lures.any", "lures.prize", "fraud.bank-change", "fraud.gift-cards", "html.credential-form"):
        for verdict in (Verdict.PHISHING, Verdict.FRAUD):
            hard = ("domains.sender-unknown", name)
            assert judged(*hard, *here).points.get(verdict, 0) == judged(*hard, here[1]).points.get(verdict, 0)
