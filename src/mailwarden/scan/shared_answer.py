"""Gives one answer for a message with recipients of several tenants: the most severe of their decisions. Pure.

Each tenant's part is judged and decided separately and has its own row. A client that accepts only one result gets the
answer of the leading part. A tenant's `drop` or `bounce` must not lose the mail of another tenant, so it counts as
`quarantine` unless all tenants share it.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.outcome import Decision, Ruling, Step, Verdict, severity
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import AssignedBy
from mailwarden.policy.decide import BOUNCE_SUPPRESSED_TAG, DEFAULT_TENANT_TAG, WARN_TAG
from mailwarden.scan.list_lookup import ListLookupResult

MIXED_TAG = "policy.mixed-recipients"
STEP = "mixed recipients"


class Part(Struct, frozen=True):
    """A message judged and decided for one tenant, and not yet stored."""

    finished: FinishedRequest
    compared: ListLookupResult
    stored: bool

    @property
    def tenant(self) -> UUID:
        return self.finished.tenant

    @property
    def decision(self) -> Decision:
        return self.finished.ruling.decision


def settle(parts: Sequence[Part], *, apart: bool = False) -> list[Part]:
    """Return the parts as they can be carried out; a single part stays as it is.

    With one answer for all the leading part comes first, and the parts say that others shared it. A source that
    carries out the parts `apart` has one reply all the same: it bounces all of them or none.
    """
    if len(parts) == 1:
        return list(parts)
    shared = _with_shared_losses(parts, (Decision.BOUNCE,) if apart else (Decision.BOUNCE, Decision.DROP))
    if apart:
        return shared
    # On a tie the lowest tenant UUID leads, as in history, so that the answer and the first row agree.
    ranked = sorted(sorted(shared, key=lambda part: part.tenant), key=_severity, reverse=True)
    answered = ranked[0].decision
    return [_with_ruling(part, _marked(part.finished.ruling, answered)) for part in ranked]


def _with_shared_losses(parts: Sequence[Part], losing: Sequence[Decision]) -> list[Part]:
    """Return the parts with `quarantine` for each decision in `losing` that the other parts do not share."""
    decisions = [part.decision for part in parts]
    together: list[Part] = []
    for own, part in enumerate(parts):
        others = {*decisions[:own], *decisions[own + 1 :]}
        unshared = tuple(decision for decision in losing if others - {decision})
        ruling = _quarantined(part.finished.ruling) if part.decision in unshared else part.finished.ruling
        together.append(replace(part, finished=replace(part.finished, ruling=ruling, unshared=unshared)))
    return together


def _with_ruling(part: Part, ruling: Ruling) -> Part:
    return replace(part, finished=replace(part.finished, ruling=ruling))


def _quarantined(ruling: Ruling) -> Ruling:
    """Return the ruling for a tenant whose `bounce` or `drop` other recipients of the message do not share."""
    tags = {*ruling.tags, *((BOUNCE_SUPPRESSED_TAG,) if ruling.decision is Decision.BOUNCE else ())}
    step = Step(STEP, f"other recipients do not share the {ruling.decision}: quarantine instead")
    return replace(ruling, decision=Decision.QUARANTINE, tags=tuple(sorted(tags)), trace=(*ruling.trace, step))


def answer_of(settled: Sequence[Part]) -> FinishedRequest:
    """Return the answer for a caller that may see all parts: the leading part.

    It has the tag of the default tenant if any part was assigned to that tenant.
    """
    leading = settled[0].finished
    if not any(part.finished.assigned_by is AssignedBy.DEFAULT for part in settled):
        return leading
    tags = tuple(sorted({*leading.ruling.tags, DEFAULT_TENANT_TAG}))
    return replace(leading, ruling=replace(leading.ruling, tags=tags))


def public_answer_of(settled: Sequence[Part]) -> FinishedRequest:
    """Return the answer that recipients of all tenants may read, such as header fields of their common message.

    It has the tags and reasons that all parts share. It shows nothing of another tenant's lists, learned statistics or
    sender history, and not that the message has recipients elsewhere. A warning stays a warning.
    """
    parts = [part.finished for part in settled]
    leading = parts[0]
    if len(parts) == 1:
        return leading
    judgement, ruling = leading.judgement, leading.ruling
    reasons = [part.judgement.reasons for part in parts]
    shared_tags = set.intersection(*(set(part.tags) for part in parts)) - {MIXED_TAG}
    if WARN_TAG in leading.tags:
        shared_tags.add(WARN_TAG)
    shared = replace(
        judgement,
        summary=f"The message is {judgement.verdict}.",
        reasons=tuple(reason for reason in judgement.reasons if all(reason in those for those in reasons)),
        tags=tuple(sorted(shared_tags)),
    )
    return replace(leading, judgement=shared, ruling=replace(ruling, tags=(), trace=(), entry=None))


def undecided(parts: Sequence[Part]) -> FinishedRequest | None:
    """Return the leading part if the analysis is incomplete and no part is convicted, else None."""
    leading = max(parts, key=_severity).finished
    return leading if leading.judgement.verdict is Verdict.UNKNOWN else None


def _severity(part: Part) -> tuple[int, int]:
    return severity(part.decision, part.finished.judgement.verdict)


def _marked(ruling: Ruling, answered: Decision) -> Ruling:
    step = Step(STEP, f"the message has recipients of other tenants too; all recipients were answered {answered}")
    return replace(ruling, tags=tuple(sorted({*ruling.tags, MIXED_TAG})), trace=(*ruling.trace, step))
