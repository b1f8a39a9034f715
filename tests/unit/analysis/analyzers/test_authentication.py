"""Authentication: a sender is never authenticated beside a DMARC failure, and an ambiguous one never at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.analyzer import EngineAnswer, Known
from mailwarden.analysis.analyzers.authentication import DMARC_FAILURES, AuthenticationAnalyzer, Standing
from mailwarden.engines.rspamd import DMARC, SPF, sender_checks
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Report, Status
from mailwarden.model.record import MessageSummary
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy

DOMAINS = ("pass.example", "mail.pass.example", "company.example", "")
PASSES = frozenset({"aligned", "spf-pass", "dkim-pass", "dmarc-pass"})


def conclude(symbols, sender="x@pass.example", envelope="x@pass.example", *, ambiguous=False, remote="192.0.2.10"):
    posted = Envelope(envelope, ("bob@south.example",), remote, "mail.pass.example")
    known = Known(
        posted,
        MessageSummary(1, "", from_address=sender),
        {"rspamd": EngineAnswer((), authentication=sender_checks(symbols, posted))},
        ambiguous,
    )
    return tuple(AuthenticationAnalyzer().conclude(known))


def names(findings):
    return {finding.name.removeprefix("authentication.") for finding in findings}


def tags(findings):
    report = Report("authentication", True, Status.FINISHED, 0.0, findings)
    return judge(Evidence((report,)), load_policy()).tags


symbol_sets = st.builds(
    lambda chosen, domain, trace: {
        **{name: (domain,) if name.startswith("DMARC") and domain else () for name in chosen},
        **({"DKIM_TRACE": tuple(trace)} if trace else {}),
    },
    st.sets(st.sampled_from([*(name for name, _ in (*SPF, *DMARC)), "R_DKIM_ALLOW", "R_DKIM_REJECT", "MULTIPLE_FROM",
                             "FROM_EQ_ENVFROM"])),
    st.sampled_from(DOMAINS),
    st.lists(st.sampled_from([f"{domain}:{mark}" for domain in DOMAINS for mark in "+-?~"]), max_size=3),
)  # fmt: skip
addresses = st.sampled_from([f"x@{domain}" if domain else "" for domain in DOMAINS])


@pytest.mark.contract("8 One sender identity per message")
@given(symbol_sets, addresses, addresses, st.booleans(), st.sampled_from(("192.0.2.10", None)))
def test_aligned_never_stands_beside_a_dmarc_failure(symbols, sender, envelope, ambiguous, remote):
    findings = conclude(symbols, sender, envelope, ambiguous=ambiguous, remote=remote)
    assert "aligned" not in names(findings) or not names(findings) & DMARC_FAILURES
    assert not {"auth.aligned", "auth.dmarc-fail"} <= set(tags(findings))
    assert not (
        symbols.keys() & {n for n, r in DMARC if f"dmarc-{r}" in DMARC_FAILURES} and "aligned" in names(findings)
    )


@given(symbol_sets, addresses, addresses)
def test_an_ambiguous_sender_has_no_authentication_result(symbols, sender, envelope):
    assert not names(conclude(symbols, sender, envelope, ambiguous=True)) - {"unaligned", "duplicate-from"}


def test_a_standing_that_is_both_cannot_be_made():
    with pytest.raises(ValueError, match="not authenticated"):
        Standing("dmarc-reject", "SPF")


def test_strict_alignment_that_fails_is_not_aligned():
    symbols = {
        "R_SPF_ALLOW": (),
        "R_DKIM_NA": (),
        "DMARC_POLICY_REJECT": ("strict.example : SPF not aligned", "reject"),
    }
    assert "aligned" not in names(conclude(symbols, "x@strict.example", "x@mail.strict.example"))


def test_a_policy_that_could_not_be_asked_leaves_the_sender_unauthenticated():
    symbols = {"R_SPF_ALLOW": (), "R_DKIM_NA": (), "DMARC_DNSFAIL": ("pass.example : server fail",)}
    assert names(conclude(symbols)) >= {"dmarc-error", "unaligned"}


@pytest.mark.parametrize(
    ("symbols", "sender", "envelope"),
    [
        ({"DMARC_POLICY_ALLOW": ("pass.example", "none")}, "boss@company.example", "x@pass.example"),
        ({"DMARC_NA": ("No From header",)}, "boss@company.example", "x@pass.example"),
        ({"DMARC_NA": ("pass.example",)}, "boss@company.example", "x@pass.example"),
        ({"DMARC_NA": ("pass.example",)}, "", "x@pass.example"),
        ({"FROM_NEQ_ENVFROM": ("a@pass.example", "x@pass.example")}, "boss@company.example", "x@pass.example"),
        ({"FROM_NEQ_ENVFROM": ("boss@company.example", "x@pass.example")}, "boss@company.example", "y@other.example"),
        ({"FROM_EQ_ENVFROM": ()}, "boss@company.example", "x@pass.example"),
    ],
)
def test_a_sender_that_rspamd_read_otherwise_is_ambiguous(symbols, sender, envelope):
    findings = conclude({"R_SPF_ALLOW": (), "R_DKIM_NA": (), **symbols}, sender, envelope)
    assert {finding.name for finding in findings} == {AMBIGUOUS_SENDER, "authentication.unaligned"}


def test_the_same_organisation_read_by_both_is_one_sender():
    symbols = {
        "R_SPF_ALLOW": (), "R_DKIM_NA": (), "DMARC_POLICY_ALLOW": ("pass.example", "none"),
        "FROM_NEQ_ENVFROM": ("x@news.pass.example", "b@mail.pass.example"),
    }  # fmt: skip
    assert names(conclude(symbols, "x@news.pass.example", "b@mail.pass.example")) >= PASSES - {"dkim-pass"}


def test_a_parent_domain_by_another_suffix_list_is_the_same_sender():
    findings = conclude({"DMARC_NA": ("github.io",)}, "ada@north.github.io", "ada@north.github.io")
    assert AMBIGUOUS_SENDER not in {finding.name for finding in findings}
