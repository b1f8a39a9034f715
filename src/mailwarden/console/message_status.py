"""The status of a message at the top of its page, and whether a release needs confirmation. Pure.

Everything comes from the record in history, from the row in quarantine and from the policy.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from mailwarden.console.language import N_, _, number_text, word_text
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Profile
from mailwarden.policy.rejudge import judge_again, without_lists
from mailwarden.policy.rules import Policy, for_tenant
from mailwarden.quarantine.model import BY_RECIPIENT, HeldMessage, HeldRecipient, State

MAX_NAMED = 3  # recipients named in one line
DANGEROUS = frozenset({Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD})  # a release asks for confirmation
_SMTP = "smtp"
# The reply to an undecided message, by scan source. SMTP clients try again; the caller of the API decides itself.
_UNDECIDED_REPLIES = {
    _SMTP: N_("The sender received: 451 4.7.1, try again later"),
    "rspamdApi": N_("The client received: soft reject, try again later"),
}
PARTICIPLES = {
    Decision.DELIVER: N_("delivered"),
    Decision.QUARANTINE: N_("quarantined"),
    Decision.BOUNCE: N_("bounced"),
    Decision.DROP: N_("dropped"),
    Decision.UNDECIDED: N_("left undecided"),
}


class StatusLine(Struct, frozen=True):
    """One sentence about the state of the message; `word` chooses its colour."""

    word: str
    sentence: str


def status_of(
    finished: FinishedRequest | None, held: HeldMessage | None, policy: Policy, *, reads_quarantine: bool = True
) -> tuple[StatusLine, ...]:
    """Return what happened to the message, one line for each state of its recipients."""
    if held is not None:
        return tuple(_held_lines(held))
    if finished is None:
        return ()
    return (_decided_line(finished, policy, reads_quarantine=reads_quarantine),)


def _held_lines(held: HeldMessage) -> Iterator[StatusLine]:
    groups: dict[tuple[State, str], list[HeldRecipient]] = {}
    for recipient in held.recipients:
        groups.setdefault(
            (recipient.state, recipient.changed_by if recipient.state is not State.HELD else ""), []
        ).append(recipient)
    order = list(State)
    for (state, by), those in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        whom = names_of([each.address for each in those])
        when = max((each.changed_at for each in those if each.changed_at), default=None)
        yield StatusLine(state, _held_sentence(held, state, whom, by, when))


def _held_sentence(held: HeldMessage, state: State, whom: str, by: str, when: datetime | None) -> str:
    match state:
        case State.HELD:
            values = {"since": minute_text(held.received), "whom": whom, "until": minute_text(held.expires)}
            if held.is_kept:
                return _("Held since %(since)s for %(whom)s, kept until %(until)s.") % values
            return _("Held since %(since)s for %(whom)s, its content is deleted.") % values
        case State.RELEASING:
            sentence = _("Being released to %(whom)s, requested by %(name)s, %(time)s.")
        case State.RELEASED:
            sentence = _("Released to %(whom)s by %(name)s, %(time)s.")
        case State.DELETED if held.is_kept:
            sentence = _("Deleted for %(whom)s by %(name)s, %(time)s.")
        case State.DELETED:
            sentence = _("Deleted for %(whom)s by %(name)s, %(time)s; its content is deleted.")
    return sentence % {"whom": whom, "name": actor_text(by), "time": minute_text(when)}


def _decided_line(finished: FinishedRequest, policy: Policy, *, reads_quarantine: bool) -> StatusLine:
    decision = finished.ruling.decision
    would = would_have_been(finished, policy)
    moment = minute_text(finished.completed)
    if would is not None:
        values = {"done": _capitalised(participle(decision)), "would": participle(would), "time": moment}
        return StatusLine(would, _("%(done)s; it would have been %(would)s, %(time)s.") % values)
    if decision is Decision.UNDECIDED:
        values = {"reply": _(_undecided_reply(finished.source)), "time": moment}
        return StatusLine(decision, _("%(reply)s, %(time)s. No message is held.") % values)
    if finished.source != _SMTP:
        values = {"decision": word_text(decision), "time": moment}
        return StatusLine(decision, _("The API answered “%(decision)s”, %(time)s. No message is held.") % values)
    if decision is Decision.QUARANTINE and reads_quarantine:
        sentence = _("Quarantined, %(time)s. The quarantine has no record of it any more.")
        return StatusLine(decision, sentence % {"time": moment})
    return StatusLine(decision, f"{_capitalised(participle(decision))}, {moment}.")


def participle(decision: Decision) -> str:
    """Return what was done by a decision, in the language of the request."""
    return _(PARTICIPLES[decision])


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _undecided_reply(source: str) -> str:
    return _UNDECIDED_REPLIES.get(
        source, N_("The API answered “undecided”; the calling system should retry or hold the message")
    )


def would_have_been(finished: FinishedRequest, policy: Policy) -> Decision | None:
    """Return the decision of the profile `balanced` for a tenant in `monitor`, or None if it is the same.

    It is computed from the recorded inputs. If the rules changed since, the result is unknown, and None as well.
    """
    if finished.profile is not Profile.MONITOR or "policy.monitor" not in finished.tags:
        return None
    judgement, decision = judge_again(
        finished,
        for_tenant(policy, finished.weights),
        without_lists(finished.evidence),
        finished.listing,
        Profile.BALANCED,
    )
    same = judgement.verdict is finished.judgement.verdict and decision is not finished.ruling.decision
    return decision if same else None


def needs_confirmation(held: HeldMessage, finished: FinishedRequest | None) -> bool:
    """Return whether a release must be confirmed: phishing, fraud, malware, or any reason that argues for malware.

    A message whose reasons are not in history any more must be confirmed, too.
    """
    if held.verdict in DANGEROUS or finished is None:
        return True
    return any(reason.verdict is Verdict.MALWARE and reason.weight > 0 for reason in finished.judgement.reasons)


def names_of(addresses: Sequence[str]) -> str:
    """Return the first recipients and the number of the others."""
    shown = ", ".join(addresses[:MAX_NAMED])
    more = len(addresses) - MAX_NAMED
    return _("%(names)s and %(number)s more") % {"names": shown, "number": number_text(more)} if more > 0 else shown


def actor_text(name: str) -> str:
    """Return an actor's name without its kind; a recipient who used a link of a digest is named as such."""
    if name.startswith(BY_RECIPIENT):
        return _("the recipient %(address)s") % {"address": name.removeprefix(BY_RECIPIENT)}
    return name.removeprefix("user:") or _("an unknown user")


def minute_text(moment: datetime | None) -> str:
    """Return a time in a sentence. Templates show it in the format of the language."""
    return _("at an unknown time") if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
