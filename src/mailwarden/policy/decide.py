"""From a judgement to a ruling: an ordered table of steps, each leaving a line in the decision trace. Pure."""

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.judgement import Judgement, Ruling, Step
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.policy.rules import Policy

# From the mildest to the most severe. Undecided stands above deliver: it must never be outvoted by it.
SEVERITY = (Decision.DELIVER, Decision.UNDECIDED, Decision.QUARANTINE, Decision.BOUNCE, Decision.DROP)


class Case(Struct, frozen=True):
    """What the steps know, and what they have come to so far."""

    judgement: Judgement
    assignment: Assignment
    policy: Policy
    session_open: bool
    decision: Decision = Decision.UNDECIDED
    settled: bool = False  # a step that settles the decision leaves later ones nothing to soften
    tags: tuple[str, ...] = ()


def decide(judgement: Judgement, assignment: Assignment, policy: Policy, *, session_open: bool = False) -> Ruling:
    """Take the steps in order and return the decision, the tags it adds and the trace."""
    case = Case(judgement, assignment, policy, session_open)
    trace = []
    for name, take in STEPS:
        case, outcome = take(case)
        trace.append(Step(name, outcome))
    return Ruling(decision=case.decision, tags=tuple(sorted(set(case.tags))), trace=tuple(trace))


def severest(decisions: Iterable[Decision]) -> Decision:
    """Return the decision to answer for several recipients; without any, nothing is decided."""
    return max(decisions, key=SEVERITY.index, default=Decision.UNDECIDED)


def _malware_floor(case: Case) -> tuple[Case, str]:
    if case.judgement.verdict is Verdict.MALWARE:
        return replace(case, decision=Decision.QUARANTINE, settled=True), "malware: nothing below may deliver it"
    return case, "not malware"


def _profile(case: Case) -> tuple[Case, str]:
    verdict, profile = case.judgement.verdict, case.assignment.profile
    if case.settled:
        return case, "already settled"
    decision = case.policy.decision_for(verdict, profile)
    return replace(case, decision=decision), f"{verdict} under the profile {profile}: {decision}"


def _blocked_address(case: Case) -> tuple[Case, str]:
    if case.judgement.verdict is Verdict.BLOCKED and "list.ip-block" in case.judgement.tags:
        return replace(case, decision=Decision.BOUNCE), "the sending address is blocked: bounce"
    return case, "no blocked address"


def _forced_quarantine(case: Case) -> tuple[Case, str]:
    if not case.judgement.forces_quarantine:
        return case, "nothing forces quarantine"
    if case.decision in (Decision.DELIVER, Decision.UNDECIDED):
        return replace(case, decision=Decision.QUARANTINE), "a limit was tripped: quarantine in every profile"
    return case, f"a limit was tripped: {case.decision} stands"


def _unfinished(case: Case) -> tuple[Case, str]:
    if case.judgement.incomplete and case.decision is Decision.DELIVER:
        return replace(case, decision=Decision.UNDECIDED), "the analysis is incomplete: not delivered"
    return case, "incomplete, and not delivered" if case.judgement.incomplete else "the analysis is complete"


def _bounce(case: Case) -> tuple[Case, str]:
    if case.decision is not Decision.BOUNCE:
        return case, "no bounce"
    if case.session_open:
        return case, "the SMTP session is open: bounce"
    tags = (*case.tags, "policy.bounce-suppressed")
    return replace(case, decision=Decision.QUARANTINE, tags=tags), "the SMTP session is over: quarantine instead"


def _warning(case: Case) -> tuple[Case, str]:
    if case.judgement.verdict is Verdict.SUSPICIOUS and case.decision is Decision.DELIVER:
        return replace(case, tags=(*case.tags, "policy.warn")), "delivered with a warning"
    return case, "no warning"


def _default_tenant(case: Case) -> tuple[Case, str]:
    if case.assignment.by is AssignedBy.DEFAULT:
        return replace(case, tags=(*case.tags, "policy.default-tenant")), "the default tenant was taken"
    return case, f"the tenant was given by the {case.assignment.by}"


STEPS: tuple[tuple[str, Callable[[Case], tuple[Case, str]]], ...] = (
    ("malware floor", _malware_floor),  # first, so that no list and no profile can soften it
    # Here come, in this order: simulation and exempt recipients, the tenant's lists, the global lists.
    ("profile", _profile),
    ("blocked address", _blocked_address),
    ("forced quarantine", _forced_quarantine),
    ("incomplete analysis", _unfinished),  # the last word against delivering what was not looked at
    ("bounce", _bounce),
    ("warning", _warning),
    ("default tenant", _default_tenant),
)
