"""The indicators of a message: its values that a search can find.

Pure: the page of a message shows them at once, and their counts arrive later.
"""

from collections.abc import Iterator
from urllib.parse import urlencode

from msgspec import Struct

from mailwarden.console.language import _
from mailwarden.console.message_view import candidates_of_request
from mailwarden.history.store import campaign_for
from mailwarden.lists.catalogue import MatchOn
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

MAX_SUBJECT_WORDS = 12


class Indicator(Struct, frozen=True):
    """A value of the message and the search that finds it."""

    label: str
    value: str
    search: str
    total: int | None = None  # None before the count, and if it took too long
    exact: bool = True
    tenants: int = 0  # of the counted messages

    @property
    def address(self) -> str:
        return f"/console/messages?{urlencode({'q': self.search, 'range': '30d'})}"


def indicators_of(request: FinishedRequest, scope: Scope) -> Iterator[Indicator]:
    """Yield the values of the message that a search can find: campaign, sender, domain, IP, links, files, subject."""
    if campaign := campaign_for(scope, request):
        yield Indicator(_("Similar messages"), _("campaign %(id)s") % {"id": campaign}, f"campaign:{campaign}")
    sender = request.summary.from_address or request.envelope.sender
    if "@" in sender:
        domain = sender.rpartition("@")[2]
        yield Indicator(_("Sender"), sender, f"from:{_quoted(sender)}")
        yield Indicator(_("Domain and its subdomains"), domain, f"from:{_quoted(domain)}")
    for candidate in candidates_of_request(request):
        if candidate.value is MatchOn.CLIENT_IP:
            yield Indicator(_("Sending IP"), candidate.entry, f"ip:{candidate.entry}")
        elif candidate.value is MatchOn.URL:
            yield Indicator(_("Links to"), candidate.entry, f"url:{_quoted(candidate.entry)}")
        elif candidate.value is MatchOn.FILE:
            yield Indicator(candidate.label, candidate.entry, f"hash:{candidate.entry}")
    words = request.summary.subject.replace('"', " ").split()[:MAX_SUBJECT_WORDS]
    if words:
        yield Indicator(_("Subject"), request.summary.subject, f'subject:"{" ".join(words)}"')


def _quoted(value: str) -> str:
    """Return the value for a search; a value with spaces or quotes is put in quotes without its own."""
    plain = value.replace('"', "")
    return f'"{plain}"' if plain != value or any(map(str.isspace, plain)) else plain
