"""Fitted weights: within their ranges, for the worst source, and kept only if they help left-out sources."""

import pytest
from msgspec.structs import replace

from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import Rule, Severity, load_policy, make_policy, read_policy, reweigh
from tests.samples.judged import policy_of, scanned
from workshop.evaluate import descent
from workshop.evaluate.sums import messages_of
from workshop.evaluate.trial import try_all
from workshop.evaluate.weights import free_rules, is_fixed, range_of, write_weights

POLICY = policy_of(
    form=("phishing", 60),
    lure=("phishing", 30),
    hidden=("phishing", 75),
    kit=("spam", 100),
    own=("phishing", -20),
    rare=("phishing", 40),
)


def mail(label, source, count, *findings):
    """Return so many messages of a source."""
    one = scanned(label, *(f"html.{name}" for name in findings))
    return [replace(one, sample=replace(one.sample, corpus="made", origin=source))] * count


# `hidden` is as frequent in good mail as in attacks; `form` is in attacks only, and ten points short.
MAIL = [
    *mail("ham", "shop", 100),
    *mail("ham", "shop", 2, "lure", "hidden"),
    *mail("ham", "bank", 100, "own"),
    *mail("ham", "bank", 2, "lure", "hidden"),
    *mail("phishing", "pot", 30, "form", "lure"),
    *mail("phishing", "pot", 5, "rare"),
    *mail("phishing", "trap", 30, "form", "lure"),
    *mail("spam", "trap", 15, "kit"),
    *mail("phishing", "net", 30, "form", "lure"),
    *mail("ham", "list", 20, "lure"),
    *mail("phishing", "net", 10, "form", "lure", "own", "hidden"),
]


SHIPPED = [rule.weight for rule in POLICY.rules]


def messages(records, policy=POLICY):
    return messages_of(try_all(records, policy), policy)


def fit(some, policy=POLICY):
    shipped = [rule.weight for rule in policy.rules]
    return descent.fit_weights(some, shipped, free_rules(policy.rules, some))


def gains_of(some, policy):
    """Return what each changed weight gains on the sources that it was not fitted to."""
    sources = {message.source for message in some}
    without = {source: fit([one for one in some if one.source != source], policy) for source in sources}
    return descent.contributions(some, [rule.weight for rule in policy.rules], fit(some, policy), without)


@pytest.fixture(scope="module")
def fitted():
    return fit(messages(MAIL))


def test_attacks_are_held_and_good_mail_is_not(fitted):
    changed = {rule.id: weight for rule, weight in zip(POLICY.rules, fitted, strict=True) if weight != rule.weight}
    before, after = try_all(MAIL, POLICY), try_all(MAIL, reweigh(POLICY, changed))
    assert sum(one.held for one in before if one.sample.is_ham) == 4
    assert not any(one.held for one in after if one.sample.is_ham)
    assert all(one.held for one in after if one.sample.is_attack and "html.rare" not in one.finding_names)


def test_weights_are_integers_with_their_sign_in_their_range(fitted):
    for rule, weight in zip(POLICY.rules, fitted, strict=True):
        least, most = range_of(rule)
        assert isinstance(weight, int)
        assert weight == rule.weight or least <= weight <= most
        assert weight * rule.weight > 0


def test_fixed_rules_and_rare_rules_keep_their_weight(fitted):
    changed = {rule.id for rule, weight in zip(POLICY.rules, fitted, strict=True) if weight != rule.weight}
    assert changed
    assert not changed & {"html.kit", "html.rare"}


def test_a_fit_is_deterministic(fitted):
    assert fit(messages(MAIL)) == fitted


def test_the_worst_source_counts_more_than_the_average():
    policy = policy_of(a=("phishing", 60), b=("phishing", 60))
    some = [
        *mail("phishing", "large", 400, "a", "b"),
        *mail("phishing", "missed", 30, "a"),
        *mail("phishing", "other", 30, "a"),
        *mail("ham", "x", 40, "b"),
    ]
    weights = fit(messages(some, policy), policy)
    assert weights[0] > 90  # the large source is held already: only the missed ones gain
    assert weights[1] <= 60


def test_a_change_that_helps_no_left_out_source_does_not_hold():
    """The attacks of one source have a finding that the good mail of another has too."""
    policy = policy_of(a=("phishing", 60), b=("phishing", 30))
    some = [
        *mail("phishing", "one", 40, "a", "b"),
        *mail("ham", "two", 300),
        *mail("ham", "two", 1, "b"),
    ]
    some = messages(some, policy)
    assert fit(some, policy)[0] == 60  # one source alone fits no weight
    assert fit(some, policy)[1] > 30
    assert [each.holds for each in gains_of(some, policy)] == [False]


def test_a_change_holds_if_it_gains_and_loses_in_no_corpus():
    holds = [
        descent.Contribution(0, {"old": 0.002, "new": 0.0}).holds,
        descent.Contribution(0, {"old": 0.002, "new": -0.001}).holds,
        descent.Contribution(0, {"old": 0.00001, "new": 0.00001}).holds,
    ]
    assert holds == [True, False, False]


def test_a_change_that_one_corpus_pays_for_does_not_hold():
    """`a` tells attacks of the first corpus, and is in good mail and attacks of the second."""
    policy = policy_of(a=("phishing", 85), b=("phishing", 10))
    other = [*mail("ham", "x", 40, "a"), *mail("ham", "y", 40, "a")]
    other = [replace(one, sample=replace(one.sample, corpus="second")) for one in other]
    some = [*mail("phishing", "one", 60, "a", "b"), *mail("phishing", "two", 60, "a", "b"), *mail("ham", "z", 300)]
    gains = {each.rule: each for each in gains_of(messages([*some, *other], policy), policy)}
    assert gains[0].gains["made"] < 0 < gains[0].gains["second"]
    assert not gains[0].holds


def test_rules_that_define_a_verdict_are_fixed():
    for rule in load_policy().rules:
        if rule.verdict in (Verdict.MALWARE, Verdict.BLOCKED) or rule.forces_quarantine or abs(rule.weight) == 100:
            assert is_fixed(rule), rule.id
        if not is_fixed(rule):
            least, most = range_of(rule)
            assert least <= rule.weight <= most <= 95, rule.id


def test_sums_follow_caps_restraints_and_joining_rules():
    rules = [
        _rule("lures.a", "phishing", 50),
        _rule("lures.b", "phishing", 60),
        _rule("lures.each", "phishing", 30, counts="each", cap=70),
        _rule("html.c", "phishing", 25),
        _rule("rspamd.score", "spam", 20, joins_leading=True),
        _rule("restraint.own", "phishing", 0, cap=80, restrains=("lures",)),
        _rule("restraint.less", "phishing", -15, restrains=("lures.a",)),
    ]
    policy = make_policy(rules, {}, POLICY.verdicts)
    names = [rule.id for rule in rules]
    records = [
        scanned("phishing", *(name for place, name in enumerate(names) if bits >> place & 1)) for bits in range(128)
    ]
    records.append(scanned("phishing", "lures.each", "lures.each", "lures.each", "restraint.own", "html.c"))
    judged = try_all(records, policy)
    weights = [rule.weight for rule in policy.rules]
    for one, message in zip(judged, messages_of(judged, policy), strict=True):
        points = one.judgement.points
        expected = max(points.get(verdict, 0) for verdict in ("phishing", "spam", "malware"))
        assert message.sums(weights)[0] == max(0, expected), sorted(one.finding_names)
        assert message.is_held(weights) == one.held


def _rule(name, verdict, weight, **more):
    return Rule(name, name, "d", name, Verdict(verdict), weight, "s", Severity.LOW, "none", **more)


def test_rules_of_one_source_are_not_fitted():
    one_source = [message for message in messages(MAIL) if message.source[1] == "pot"]
    assert free_rules(POLICY.rules, one_source) == []


def test_written_weights_keep_everything_else(tmp_path):
    text = "# why\nrules:\n  - id: html.form\n    when: html.form # seen\n    weight: 60 # points\n"
    text += "  - id: html.lure\n    weight: -30\n"
    (tmp_path / "html.yml").write_text(text)
    write_weights(tmp_path, {"html.form": 72, "html.lure": -25})
    assert (tmp_path / "html.yml").read_text() == text.replace("60", "72").replace("-30", "-25")
    with pytest.raises(SystemExit, match=r"html\.unknown"):
        write_weights(tmp_path, {"html.unknown": 5})


def test_the_shipped_rule_files_can_be_written(tmp_path):
    from mailwarden.policy.rules import FOLDER

    (tmp_path / "rules").mkdir()
    for file in (FOLDER / "rules").glob("*.yml"):
        (tmp_path / "rules" / file.name).write_bytes(file.read_bytes())
    wanted = {rule.id: range_of(rule)[0] for rule in load_policy().rules if not is_fixed(rule)}
    write_weights(tmp_path / "rules", wanted)
    written = {rule.id: rule.weight for rule in read_policy(tmp_path).rules}
    assert {name: written[name] for name in wanted} == wanted
    assert all(written[rule.id] == rule.weight for rule in load_policy().rules if rule.id not in wanted)


def test_the_loss_falls_with_the_points_of_an_attack():
    attack = next(message for message in messages(MAIL) if not message.good)
    more = [2 * weight for weight in SHIPPED]
    assert descent.loss_of(attack, more) < descent.loss_of(attack, SHIPPED)
