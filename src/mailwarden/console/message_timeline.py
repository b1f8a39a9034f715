"""The events of a message in the order of their time: received, judged, held, reported, released, deleted. Pure.

History, quarantine and reports have them. The quarantine keeps the last change of each recipient.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from mailwarden.console.language import N_, _, sentence_text, word_text
from mailwarden.console.message_status import actor_text, minute_text, names_of
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.model import HeldMessage, State
from mailwarden.user_reports.reports import UserReport

_CHANGES = {
    State.HELD: N_("Release failed"),
    State.RELEASING: N_("Release requested"),
    State.RELEASED: N_("Released"),
    State.DELETED: N_("Deleted"),
}


class Event(Struct, frozen=True):
    moment: datetime
    word: str  # chooses the colour
    title: str
    details: tuple[str, ...] = ()


def events_of(
    finished: FinishedRequest | None, held: HeldMessage | None, reports: Sequence[UserReport] = ()
) -> tuple[Event, ...]:
    """Return the events, the oldest first."""
    events = [*_scan(finished), *_quarantine(held, finished), *map(_report, reports)]
    return tuple(sorted(events, key=lambda event: event.moment))


def _scan(finished: FinishedRequest | None) -> Iterator[Event]:
    if finished is None:
        return
    envelope = finished.envelope
    values = {"guard": finished.guard, "source": finished.source, "address": envelope.remote_address}
    received = _("Received by %(guard)s over %(source)s")
    if envelope.remote_address:
        received = _("Received by %(guard)s over %(source)s from %(address)s")
    addresses = {"sender": envelope.sender or _("the null sender"), "recipients": names_of(envelope.recipients)}
    yield Event(
        finished.created, "secondary", received % values, (_("Envelope: %(sender)s to %(recipients)s") % addresses,)
    )
    unfinished = [
        _("%(analyzer)s did not finish: %(reason)s")
        % {"analyzer": failure.analyzer, "reason": sentence_text(failure.sentence)}
        for failure in finished.evidence.failures
    ]
    judged = {"verdict": word_text(finished.judgement.verdict), "decision": word_text(finished.ruling.decision)}
    yield Event(
        finished.completed,
        finished.judgement.verdict,
        _("Verdict %(verdict)s, decision %(decision)s") % judged,
        (finished.judgement.summary, *unfinished),
    )


def _quarantine(held: HeldMessage | None, finished: FinishedRequest | None) -> Iterator[Event]:
    if held is None:
        return
    names = names_of([recipient.address for recipient in held.recipients])
    kept = _("Kept until %(time)s") % {"time": minute_text(held.expires)}
    since = max(held.received, finished.completed) if finished else held.received  # after it was judged
    yield Event(since, State.HELD, _("Held for %(names)s") % {"names": names}, (kept,))
    groups: dict[tuple[datetime, State, str], list[str]] = {}
    failures: dict[tuple[datetime, State, str], list[str]] = {}
    for recipient in held.recipients:
        if recipient.changed_at is not None:
            key = recipient.changed_at, recipient.state, recipient.changed_by
            groups.setdefault(key, []).append(recipient.address)
            if recipient.failure:
                failures.setdefault(key, []).append(f"{recipient.address}: {sentence_text(recipient.failure)}")
    for key, addresses in groups.items():
        moment, state, by = key
        values = {"change": _(_CHANGES[state]), "names": names_of(addresses), "by": actor_text(by)}
        title = _("%(change)s: %(names)s, by %(by)s") % values
        yield Event(moment, "failed" if state is State.HELD else state, title, tuple(_few(failures.get(key, ()))))


def _report(report: UserReport) -> Event:
    values = {"kind": word_text(report.kind), "name": actor_text(report.reported_by)}
    return Event(report.reported_at, report.kind, _("Reported as %(kind)s by %(name)s") % values)


def _few(lines: Iterable[str]) -> list[str]:
    return [*lines][:20]
