"""Reports invitations whose organizer is not their sender, and invitations that are receipts or lures.

The fields of a calendar are part of the message's text and links, which all analyzers read (`text/calendars.py`). This
analyzer reports only the kinds that other analyzers cannot know: programs put an invitation into the reader's calendar
before a person reads it.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links.brands import load_brands
from mailwarden.analysis.links.targets import Parties, parties_of
from mailwarden.analysis.text.calendars import Calendar
from mailwarden.analysis.text.extraction import find_phone
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.phrases import load_books
from mailwarden.analysis.view import View
from mailwarden.message.addresses import Address
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import find_urls, host_of, written_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Finding

SEVERAL = 2  # phrases of a receipt that are more than chance


class CalendarAnalyzer:
    name: ClassVar[str] = "calendar"

    def examine(self, view: View) -> Iterator[Finding]:
        inviting = [calendar for calendar in view.calendars if calendar.invites]
        if not inviting:
            return
        parties = parties_of(view)
        found: dict[str, Finding] = {}
        for calendar in inviting:
            for finding in _look(calendar, parties, view):
                found.setdefault(finding.name, finding)
        yield from found.values()


def _look(calendar: Calendar, parties: Parties, view: View) -> Iterator[Finding]:
    yield Finding("calendar.invitation", facts={"organizer": calendar.organizers[0].address[: SHOWN.fact]})
    for organizer in calendar.organizers:
        if _is_stranger(organizer, parties, view):
            yield Finding("calendar.organizer-unrelated-domain", facts={"organizer": organizer.address[: SHOWN.fact]})
        brand = load_brands().named_by(organizer.name) if organizer.name else None
        if brand and not brand.owns(organizer.domain):
            yield Finding(
                "calendar.organizer-name", facts={"brand": brand.name, "organizer": organizer.address[: SHOWN.fact]}
            )
    for value in (*calendar.entries, *calendar.links):
        for host in map(host_of, find_urls(value)):
            if host and parties.is_third_party(host):
                yield Finding("calendar.unrelated-link", facts={"host": host[: SHOWN.fact]})
                break
    yield from _look_at_text(fold(" . ".join(calendar.entries)))


def _look_at_text(text: str) -> Iterator[Finding]:
    matches = load_books().find(text)
    receipt, hotline = matches.get("calendar.receipt"), matches.get("calendar.phone-number")
    if receipt and receipt.count >= SEVERAL:
        yield Finding("calendar.receipt", facts={"words": receipt.words})
    if hotline and (number := find_phone(text)):
        yield Finding("calendar.phone-number", facts={"words": hotline.words, "number": number[:40]})


def _is_stranger(organizer: Address, parties: Parties, view: View) -> bool:
    """Return whether an organizer is neither the sender, nor the envelope's sender, nor of the recipients' domains."""
    domain = written_domain(organizer.domain)
    sent_by = written_domain(domain_of(view.envelope.sender))
    return bool(domain) and domain != sent_by and domain not in parties.own
