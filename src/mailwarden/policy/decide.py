"""Turns a judgement into a ruling: an ordered table of steps, each with a line in the decision trace. Pure."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.catalogue import CATALOGUE, Category, Effect, find_list, names_with
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Decision, Judgement, Ruling, Step, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.rules import Policy
from mailwarden.policy.sentences import show

BLOCK_LISTS = tuple(
    definition.name
    for definition in sorted(CATALOGUE, key=lambda definition: definition.precedence)
    if definition.category is Category.BLOCK
)
BOUNCING_LISTS = tuple(definition.name for definition in CATALOGUE if definition.bounces)
OVERRIDE_TAG = "policy.allow-override"
BOUNCE_SUPPRESSED_TAG = "policy.bounce-suppressed"
WARN_TAG = "policy.warn"
DEFAULT_TENANT_TAG = "policy.default-tenant"
# An entry that allows a client IP delivers only messages with these verdicts.
REPUTATION = (Verdict.SPAM, Verdict.BULK)


class Case(Struct, frozen=True):
    """The inputs of the steps, and the decision so far."""

    judgement: Judgement
    verdict: Verdict  # the verdict to decide by: the message's own, or the one without its allowed files
    assignment: Assignment
    policy: Policy
    session_open: bool
    listing: Listing
    decision: Decision = Decision.UNDECIDED
    settled: bool = False  # later steps do not change a settled decision
    tags: tuple[str, ...] = ()
    entry: ListHit | None = None


def decide(
    judgement: Judgement,
    assignment: Assignment,
    policy: Policy,
    *,
    session_open: bool = False,
    listing: Listing | None = None,
    rest_judgement: Judgement | None = None,
) -> Ruling:
    """Run the steps in order and return the decision, the tags it adds and the trace.

    `rest_judgement` leaves out the findings of allowed files; it changes the decision, never the reported verdict.
    """
    verdict = rest_judgement.verdict if rest_judgement else judgement.verdict
    case, trace = _run_steps(Case(judgement, verdict, assignment, policy, session_open, listing or Listing()))
    entry = case.entry or next(iter(_blocks(case)), None)
    return Ruling(decision=case.decision, tags=tuple(sorted(set(case.tags))), trace=tuple(trace), entry=entry)


def _run_steps(case: Case) -> tuple[Case, list[Step]]:
    trace = []
    for name, take in STEPS:
        case, outcome = take(case)
        trace.append(Step(name, outcome))
    return case, trace


def _malware_floor(case: Case) -> tuple[Case, str]:
    if case.verdict is Verdict.MALWARE:
        return replace(case, decision=Decision.QUARANTINE, settled=True), "malware: no later step may deliver it"
    return case, "not malware" if case.judgement.verdict is not Verdict.MALWARE else "malware only in allowed files"


def _allowed_files(case: Case) -> tuple[Case, str]:
    hits = case.listing.of(*names_with(Effect.CLEARED_FILE))
    if not hits or case.verdict is case.judgement.verdict:
        return case, "no allowed file changes the verdict"
    tags = (*case.tags, _tag(hits[0]), OVERRIDE_TAG)
    return replace(
        case, tags=tags, entry=hits[0]
    ), f"{_entry_text(hits[0])}: decided as {case.verdict}, the verdict without allowed files"


def _simulation(case: Case) -> tuple[Case, str]:
    if not (hits := case.listing.of(*names_with(Effect.SIMULATION))):
        return case, "no simulation"
    return _deliver(case, hits[0], "policy.simulation")


def _exempt(case: Case) -> tuple[Case, str]:
    if not (hits := case.listing.of(*names_with(Effect.EXEMPT))):
        return case, "not every recipient is exempt"
    return _deliver(case, hits[0])


def _profile(case: Case) -> tuple[Case, str]:
    profile = case.assignment.profile
    if case.settled:
        return case, "already settled"
    decision = case.policy.decision_for(case.verdict, profile)
    return replace(case, decision=decision), f"{case.verdict} under the profile {profile}: {decision}"


def _tenant_lists(case: Case) -> tuple[Case, str]:
    return _lists(case, "tenant")


def _global_lists(case: Case) -> tuple[Case, str]:
    return _lists(case, "global")


def _lists(case: Case, scope: str) -> tuple[Case, str]:
    """Apply the entries of one scope: a block entry settles the decision, an allow entry delivers."""
    blocks = [hit for hit in _blocks(case) if hit.scope == scope]
    allows = [hit for hit in case.listing.of(*names_with(Effect.DELIVER_IF_AUTHENTICATED)) if hit.scope == scope]
    if case.verdict in REPUTATION:
        allows += [hit for hit in case.listing.of(*names_with(Effect.NO_REPUTATION)) if hit.scope == scope]
    if case.settled:
        return case, "already settled"
    if blocks:  # entries of different lists have no common order, so block wins over allow
        return replace(
            case, settled=True, entry=case.entry or blocks[0]
        ), f"{_entry_text(blocks[0])}: {case.decision} stands"
    if allows:
        tags = (OVERRIDE_TAG,) if case.decision is not Decision.DELIVER else ()
        return _deliver(case, allows[0], *tags)
    return case, "no entry applies"


def _unproved(case: Case) -> tuple[Case, str]:
    if not case.listing.unproved:
        return case, "no allowed sender lacks authentication"
    tags = (*case.tags, "policy.allow-unauthenticated")
    return replace(
        case, tags=tags
    ), f"{_entry_text(case.listing.unproved[0])}: not counted, the sender is not authenticated"


def _blocked_address(case: Case) -> tuple[Case, str]:
    blocked = case.verdict is Verdict.BLOCKED and bool(case.listing.of(*BOUNCING_LISTS))
    if blocked and case.decision is Decision.QUARANTINE:
        return replace(case, decision=Decision.BOUNCE), "the client IP is blocked: bounce"
    return case, "no blocked client IP"


def _forced_quarantine(case: Case) -> tuple[Case, str]:
    if not case.judgement.forces_quarantine:
        return case, "nothing forces quarantine"
    if case.decision in (Decision.DELIVER, Decision.UNDECIDED):
        return replace(case, decision=Decision.QUARANTINE), "a rule forces quarantine, in every profile"
    return case, f"a rule forces quarantine: {case.decision} stands"


def _incomplete_analysis(case: Case) -> tuple[Case, str]:
    if case.judgement.incomplete and case.decision is Decision.DELIVER:
        return replace(case, decision=Decision.UNDECIDED), "the analysis is incomplete: not delivered"
    return case, "incomplete, and not delivered" if case.judgement.incomplete else "the analysis is complete"


def _bounce(case: Case) -> tuple[Case, str]:
    if case.decision is not Decision.BOUNCE:
        return case, "no bounce"
    if case.session_open:
        return case, "the SMTP session is open: bounce"
    tags = (*case.tags, BOUNCE_SUPPRESSED_TAG)
    return replace(case, decision=Decision.QUARANTINE, tags=tags), "the SMTP session is over: quarantine instead"


def _warning(case: Case) -> tuple[Case, str]:
    if case.verdict is Verdict.SUSPICIOUS and case.decision is Decision.DELIVER and not case.settled:
        return replace(case, tags=(*case.tags, WARN_TAG)), "delivered with a warning"
    return case, "no warning"


def _protected_names(case: Case) -> tuple[Case, str]:
    hits = case.listing.of(*names_with(Effect.PROTECTED_PERSON, Effect.PROTECTED_DOMAIN))
    tags = (*case.tags, *map(_tag, hits))
    return replace(case, tags=tags), "; ".join(map(_entry_text, hits[:3])) or "no protected name is imitated"


def _monitor(case: Case) -> tuple[Case, str]:
    """Record the decision of the profile `balanced` with the same lists."""
    if case.assignment.profile is not Profile.MONITOR:
        return case, "decisions are enforced"
    usual = replace(case.assignment, profile=Profile.BALANCED)
    usual_case = Case(case.judgement, case.verdict, usual, case.policy, case.session_open, case.listing)
    decision = _run_steps(usual_case)[0].decision
    if decision is case.decision:
        return case, f"the profile {Profile.BALANCED} decides the same: {decision}"
    tags = (*case.tags, "policy.monitor")
    return replace(case, tags=tags), f"not enforced: the profile {Profile.BALANCED} would have decided {decision}"


def _default_tenant(case: Case) -> tuple[Case, str]:
    if case.assignment.by is AssignedBy.DEFAULT:
        return replace(
            case, tags=(*case.tags, DEFAULT_TENANT_TAG)
        ), "the recipients belong to no tenant: default tenant"
    return case, f"the tenant was assigned by the {case.assignment.by}"


STEPS: tuple[tuple[str, Callable[[Case], tuple[Case, str]]], ...] = (
    ("malware floor", _malware_floor),  # first: no list and no profile can change it
    ("allowed files", _allowed_files),  # the only exception to the malware floor
    ("simulation", _simulation),
    ("exempt recipients", _exempt),
    ("profile", _profile),  # the decision if no list entry applies
    ("tenant lists", _tenant_lists),  # the tenant's entries come before the global ones
    ("global lists", _global_lists),
    ("unauthenticated sender", _unproved),
    ("blocked address", _blocked_address),
    ("forced quarantine", _forced_quarantine),
    ("incomplete analysis", _incomplete_analysis),  # never deliver a message that was not fully inspected
    ("bounce", _bounce),
    ("warning", _warning),
    ("protected names", _protected_names),  # the verdict already includes their weight; this step adds the tags
    ("monitor", _monitor),  # needs the final decision
    ("default tenant", _default_tenant),
)


def _deliver(case: Case, hit: ListHit, *tags: str) -> tuple[Case, str]:
    if case.settled:
        return case, f"{_entry_text(hit)}: already settled"
    tags = (*case.tags, _tag(hit), *tags)
    return replace(case, decision=Decision.DELIVER, settled=True, tags=tags, entry=hit), f"{_entry_text(hit)}: deliver"


def _tag(hit: ListHit) -> str:
    return find_list(hit.list_name).tag


def _blocks(case: Case) -> list[ListHit]:
    """Return the entries that block: the tenant's before the global ones, in the order of BLOCK_LISTS."""
    return sorted(case.listing.of(*BLOCK_LISTS), key=lambda hit: (hit.tenant is None, BLOCK_LISTS.index(hit.list_name)))


def _entry_text(hit: ListHit) -> str:
    """Return an entry as text for the trace."""
    comment = f" (note: {show(hit.comment)})" if hit.comment else ""
    return f"{hit.list_name} `{show(hit.entry)}` of the {'tenant' if hit.tenant else 'deployment'}{comment}"
