"""Reports how well known the domains of a message are: of From, the envelope sender, Reply-To and every link.

A popular domain proves nothing before the sender is authenticated, which policy asks for. A domain that gives
names or mailboxes to any user says nothing about the sender, however popular it is.

Security: works on hostile names inside a killable worker; a lookup takes microseconds, facts are cut.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links.companies import is_owned, same_company
from mailwarden.analysis.links.hosts import HostKind, kind_of, names_file
from mailwarden.analysis.links.popular import Band, DomainKind, band_of, domain_kind
from mailwarden.analysis.links.targets import destination, parties_of
from mailwarden.analysis.view import View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, normalize_host, registrable_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Fact, Finding
from mailwarden.model.place import WHOLE_MESSAGE, Place, area

_SENDER = {Band.TOP: "popular", Band.POPULAR: "popular", Band.LISTED: "listed", Band.UNKNOWN: "unknown"}
POPULAR = frozenset({Band.TOP, Band.POPULAR})
_RENTED = frozenset({HostKind.HOSTING, HostKind.STORAGE, HostKind.DYNAMIC})

Noticed = tuple[str, Place, dict[str, Fact]]


class DomainsAnalyzer:
    name: ClassVar[str] = "domains"

    def examine(self, view: View) -> Iterator[Finding]:
        sender = _organisation(view.sender.domain)
        for what, place, facts in (*_look_at_sender(view, sender), *_look_at_links(view, sender)):
            cut = {key: value[: SHOWN.fact] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"domains.{what}", place, cut)


def _look_at_sender(view: View, sender: str) -> Iterator[Noticed]:
    """Yield how well known the domains are that send the message and get its answers."""
    if sender and domain_kind(sender) is DomainKind.DISPOSABLE:
        yield "sender-disposable", area("From"), {"domain": sender}
    elif sender and _is_senders_own(normalize_host(view.sender.domain), sender):
        yield f"sender-{_SENDER[band_of(sender)]}", area("From"), {"domain": sender}
    others = (
        ("envelope-unknown", area("envelope"), _organisation(domain_of(view.envelope.sender))),
        ("reply-unknown", area("Reply-To"), _organisation(view.reply_to.domain)),
    )
    for what, place, domain in others:
        if domain and domain != sender and is_unknown(domain) and not same_company(sender, domain):
            yield what, place, {"domain": domain}


def _look_at_links(view: View, sender: str) -> Iterator[Noticed]:
    """Yield how well known the domains are that links lead to, besides those of sender and recipients."""
    parties = parties_of(view)
    home: list[str] = []
    company: list[str] = []
    known: list[str] = []
    unknown: dict[str, None] = {}
    others: list[str] = []
    for link in view.links:
        if not link.host or (link.bare and names_file(link.host)) or link.loose:
            continue
        host = host_of(destination(link.url))
        domain = registrable_domain(host)
        if domain and (domain == sender or domain in parties.home):
            home.append(domain)
        elif domain and same_company(sender, domain):
            company.append(domain)
        elif domain and is_owned(host) and band_of(domain) in POPULAR:
            known.append(domain)
        elif domain and is_unknown(domain) and is_owned(host):
            unknown[host] = None
        else:
            others.append(host)
    if company:
        yield "links-company", WHOLE_MESSAGE, {"domain": sender, "host": company[0]}
    if unknown:
        yield "links-unknown", WHOLE_MESSAGE, {"host": next(iter(unknown)), "count": len(unknown)}
    if known and not unknown and not others:
        yield "links-popular", WHOLE_MESSAGE, {"host": known[0]}
    if sender and is_unknown(sender) and (unknown or home) and not known and not company and not others:
        yield "nothing-known", WHOLE_MESSAGE, {"domain": sender, "host": next(iter(unknown), sender)}


def _is_senders_own(host: str, domain: str) -> bool:
    """Return whether the owner of the domain alone sends from a host."""
    kind = kind_of(host)
    if domain in free_mail_domains() or kind in _RENTED:
        return False
    return kind is not HostKind.SENDING or host == domain  # its customers send from names below it


def is_unknown(domain: str) -> bool:
    """Return whether no list of popular domains has a registered domain."""
    return band_of(domain) is Band.UNKNOWN and domain not in free_mail_domains()


def _organisation(domain: str) -> str:
    return registrable_domain(normalize_host(domain)) if domain else ""
