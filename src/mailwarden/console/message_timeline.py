"""The events of a message in the order of their time: received, judged, held, reported, released, deleted. Pure.

History, quarantine and reports have them. The quarantine keeps the last change of each recipient.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from mailwarden.console.message_status import actor_text, minute_text, names_of
from mailwarden.learning.reports import UserReport
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.model import HeldMessage, State

_CHANGES = {
    State.HELD: "Release failed",
    State.RELEASING: "Release requested",
    State.RELEASED: "Released",
    State.DELETED: "Deleted",
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
    events = [*_scan(finished), *_quarantine(held), *map(_report, reports)]
    return tuple(sorted(events, key=lambda event: event.moment))


def _scan(finished: FinishedRequest | None) -> Iterator[Event]:
    if finished is None:
        return
    envelope = finished.envelope
    sent_by = f" from {envelope.remote_address}" if envelope.remote_address else ""
    yield Event(
        finished.created,
        "secondary",
        f"Received by {finished.guard} over {finished.source}{sent_by}",
        (f"Envelope: {envelope.sender or 'the null sender'} to {names_of(envelope.recipients)}",),
    )
    unfinished = [f"{failure.analyzer} did not finish: {failure.sentence}" for failure in finished.evidence.failures]
    yield Event(
        finished.completed,
        finished.judgement.verdict,
        f"Judged {finished.judgement.verdict}, decision {finished.ruling.decision}",
        (finished.judgement.summary, *unfinished),
    )


def _quarantine(held: HeldMessage | None) -> Iterator[Event]:
    if held is None:
        return
    names = names_of([each.address for each in held.recipients])
    yield Event(held.received, State.HELD, f"Held for {names}", (f"Kept until {minute_text(held.expires)}",))
    groups: dict[tuple[datetime, State, str], list[str]] = {}
    failures: dict[tuple[datetime, State, str], list[str]] = {}
    for each in held.recipients:
        if each.changed_at is not None:
            key = each.changed_at, each.state, each.changed_by
            groups.setdefault(key, []).append(each.address)
            if each.failure:
                failures.setdefault(key, []).append(f"{each.address}: {each.failure}")
    for key, addresses in groups.items():
        moment, state, by = key
        title = f"{_CHANGES[state]}: {names_of(addresses)}, by {actor_text(by)}"
        yield Event(moment, "failed" if state is State.HELD else state, title, tuple(_few(failures.get(key, ()))))


def _report(report: UserReport) -> Event:
    return Event(report.reported_at, report.kind, f"Reported as {report.kind} by {actor_text(report.reported_by)}")


def _few(lines: Iterable[str]) -> list[str]:
    return [*lines][:20]
