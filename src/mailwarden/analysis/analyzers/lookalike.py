"""Reports senders and links that imitate a brand: by the display name, a similar domain, or its name in another.

The tenants' own protected names are compared by `lists`; this module compares well-known names, which are data.

Security: works on hostile names inside a killable worker; facts are cut.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzers.sender import choices_of
from mailwarden.analysis.links.brands import Brands, load_brands
from mailwarden.analysis.links.confusables import disguise_of
from mailwarden.analysis.view import SeenLink, View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.addresses import Identity, is_host, is_private, read_identity
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Fact, Finding, Omitted
from mailwarden.model.place import Place, area

FINDINGS = 5  # of one kind

Imitation = tuple[str, Place, dict[str, Fact]]


class LookalikeAnalyzer:
    name: ClassVar[str] = "lookalike"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        brands = load_brands()
        sender = read_identity(view.message.header("from"))
        reply = read_identity(view.message.header("reply-to"))
        reported: dict[str, int] = {}
        found = (*_senders(sender, reply, brands), *_links(view, brands), *_claims(view, sender, brands))
        for what, place, facts in found:
            reported[what] = reported.get(what, 0) + 1
            if reported[what] == FINDINGS + 1:
                yield Omitted(f"lookalike.{what}")
            elif reported[what] <= FINDINGS:
                cut = {key: value[: SHOWN.fact] if isinstance(value, str) else value for key, value in facts.items()}
                yield Finding(f"lookalike.{what}", place, cut)


def _senders(sender: Identity, reply: Identity, brands: Brands) -> Iterator[Imitation]:
    """Yield the brand that the address in From or Reply-To imitates."""
    for who, place in ((sender, area("From")), (reply, area("Reply-To"))):
        if not who.domain or (who is reply and reply.organisation == sender.organisation):
            continue
        if brand := brands.bare(who.domain):
            yield "sender-bare-name", place, {"domain": who.domain, "brand": brand.name}
        elif brand := brands.imitated_by(who.domain):
            yield "sender-domain", place, {"domain": who.domain, "brand": brand.name}
        elif borne := brands.borne_by(who.domain):
            yield "sender-contains-brand", place, {"domain": who.domain, "brand": borne[0].name}
    if sender.domain and (brand := brands.token_of(sender.local)) and not brand.owns(sender.domain):
        yield "brand-in-local-part", area("From"), {"address": sender.address, "brand": brand.name}


def _links(view: View, brands: Brands) -> Iterator[Imitation]:
    """Yield the hosts of links that imitate another."""
    hosts: dict[str, SeenLink] = {}
    for link in view.links:
        if link.domain:
            hosts.setdefault(link.host, link)
    for host, link in hosts.items():
        facts: dict[str, Fact] = {"host": host, **({"url": link.url} if len(link.url) <= SHOWN.fact else {})}
        if brand := brands.imitated_by(link.domain):
            yield "link-domain", link.place, {"brand": brand.name, **facts}
        elif borne := brands.borne_by(host):
            yield (
                f"link-{'brand-prefix' if borne[1] == 'above' else 'contains-brand'}",
                link.place,
                {"brand": borne[0].name, **facts},
            )
        if "xn--" in host and (how := disguise_of(_shown(host))):
            yield "link-homoglyphs", link.place, {"how": how, **facts}


def _claims(view: View, sender: Identity, brands: Brands) -> Iterator[Imitation]:
    """Yield the brand that a message names although neither its sender nor its links belong to it."""
    domains = {
        link.domain for link in view.links if link.domain and not link.loose
    }  # a name in the text proves nothing
    foreign = any(domain != sender.organisation for domain in domains)
    named = brands.named_by(sender.name) if sender.name else None
    if named:
        facts: dict[str, Fact] = {"brand": named.name, "address": sender.address or "no address"}
        backed = any(map(named.owns, domains))
        if not (sender.domain and named.owns(sender.domain)):
            yield ("name-own-link" if backed else "name-links" if foreign else "name"), area("From"), facts
            if not backed and _is_anybodys(sender):
                yield "name-free-host", area("From"), facts
        elif foreign and not backed:
            yield "links-unrelated", area("From"), facts
    if not foreign:
        return
    for brand in brands.named_in(view.subject, most=3):
        if brand is not named and not any(map(brand.owns, (sender.domain, *domains))):
            yield "brand-in-subject", area("Subject"), {"brand": brand.name, "address": sender.address or "no address"}


def _is_anybodys(sender: Identity) -> bool:
    """Return whether no company would send from this address."""
    if is_private(sender.domain):
        return False
    free = sender.organisation in free_mail_domains()
    return free or sender.torn or not is_host(sender.domain) or any(choices_of(sender))


def _shown(host: str) -> str:
    """Return a host in the letters that people see."""
    labels = []
    for label in host.split("."):
        try:
            labels.append(label[4:].encode("ascii").decode("punycode") if label.startswith("xn--") else label)
        except UnicodeError:
            labels.append(label)
    return ".".join(labels)
