"""Reports how well known the domains of a message are: of From, the envelope sender, Reply-To and every link.

A popular domain proves nothing before the sender is authenticated, which policy asks for. A domain that gives
names or mailboxes to any user says nothing about the sender, however popular it is.

Security: works on hostile names inside a killable worker; a lookup takes microseconds, facts are cut.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct, field

from mailwarden.analysis.links.companies import is_owned, same_company
from mailwarden.analysis.links.hosts import HostKind, kind_of, names_file
from mailwarden.analysis.links.imitations import imitated_by
from mailwarden.analysis.links.popular import Band, DomainKind, band_of, domain_kind
from mailwarden.analysis.links.targets import destination, parties_of
from mailwarden.analysis.view import View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, normalize_host, registrable_domain, written_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Fact, Finding
from mailwarden.model.place import WHOLE_MESSAGE, Place, area

_SENDER = {Band.TOP: "popular", Band.POPULAR: "popular", Band.LISTED: "top-million", Band.UNKNOWN: "unknown"}
POPULAR = frozenset({Band.TOP, Band.POPULAR})
_RENTED = frozenset({HostKind.HOSTING, HostKind.STORAGE, HostKind.DYNAMIC})

Noticed = tuple[str, Place, dict[str, Fact]]


class DomainsAnalyzer:
    name: ClassVar[str] = "domains"

    def examine(self, view: View) -> Iterator[Finding]:
        sender = written_domain(view.sender.domain)
        for what, place, facts in (*_look_at_sender(view, sender), *_look_at_links(view, sender)):
            cut = {key: value[: SHOWN.fact] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"domains.{what}", place, cut)


def _look_at_sender(view: View, sender: str) -> Iterator[Noticed]:
    """Yield how well known the domains are that send the message and get its answers."""
    if sender and domain_kind(sender) is DomainKind.DISPOSABLE:
        yield "sender-disposable", area("From"), {"domain": sender}
    elif sender and _is_senders_own(normalize_host(view.sender.domain), sender):
        yield f"sender-{_SENDER[band_of(sender)]}", area("From"), {"domain": sender}
    if popular := imitated_by(sender):
        yield "sender-lookalike", area("From"), {"domain": sender, "popular": popular}
    others = (
        ("envelope-unknown", area("envelope"), written_domain(domain_of(view.envelope.sender))),
        ("reply-to-unknown", area("Reply-To"), written_domain(view.reply_to.domain)),
    )
    for what, place, domain in others:
        if domain and domain != sender and is_unknown(domain) and not same_company(sender, domain):
            yield what, place, {"domain": domain}


class _Links(Struct):
    """The hosts that links lead to, sorted by what is known of them."""

    home: list[str] = field(default_factory=list)
    company: list[str] = field(default_factory=list)
    popular: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def _sort_links(view: View, sender: str) -> _Links:
    home, found = parties_of(view).home, _Links()
    for link in view.links:
        if not link.host or link.loose or (link.bare and names_file(link.host)):
            continue
        host = host_of(destination(link.url))
        domain = registrable_domain(host)
        if domain and (domain == sender or domain in home):
            found.home.append(host)
        elif same_company(sender, domain):
            found.company.append(host)
        elif not domain or not is_owned(host):
            found.others.append(host)
        elif band_of(domain) in POPULAR:
            found.popular.append(host)
        else:
            (found.unknown if is_unknown(domain) else found.others).append(host)
    return found


def _look_at_links(view: View, sender: str) -> Iterator[Noticed]:
    """Yield how well known the domains are that links lead to, besides those of sender and recipients."""
    links = _sort_links(view, sender)
    unknown = [*dict.fromkeys(links.unknown)]
    imitations = ((host, imitated_by(registrable_domain(host))) for host in unknown)
    if imitation := next((each for each in imitations if each[1]), None):
        yield "link-lookalike", WHOLE_MESSAGE, {"host": imitation[0], "popular": imitation[1]}
    if links.company:
        yield "links-same-company", WHOLE_MESSAGE, {"domain": sender, "host": links.company[0]}
    if unknown:
        yield "links-unknown", WHOLE_MESSAGE, {"host": unknown[0], "count": len(unknown)}
    if links.popular and not unknown and not links.others:
        yield "links-popular", WHOLE_MESSAGE, {"host": links.popular[0]}
    known = links.popular or links.company or links.others
    if sender and is_unknown(sender) and (unknown or links.home) and not known:
        yield "sender-and-links-unknown", WHOLE_MESSAGE, {"domain": sender, "host": next(iter(unknown), sender)}


def _is_senders_own(host: str, domain: str) -> bool:
    """Return whether the owner of the domain alone sends from a host."""
    kind = kind_of(host)
    if domain in free_mail_domains() or kind in _RENTED:
        return False
    return kind is not HostKind.SENDING or host == domain  # its customers send from names below it


def is_unknown(domain: str) -> bool:
    """Return whether no list of popular domains has a registered domain."""
    return band_of(domain) is Band.UNKNOWN and domain not in free_mail_domains()
