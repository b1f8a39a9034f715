"""Reports suspicious links: URL shorteners, free hosting, third parties, links that name the recipient.

Security: works on hostile links inside a killable worker; findings and facts are bounded.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links.companies import same_company
from mailwarden.analysis.links.fetched_files import fetched_name, is_archive, is_fetched
from mailwarden.analysis.links.hosts import HostKind, kind_of, names_file, public_ip, shown_host
from mailwarden.analysis.links.targets import (
    Noticed,
    Parties,
    destination,
    load_link_words,
    look_at_address,
    merge,
    parties_of,
)
from mailwarden.analysis.text.extraction import find_passwords
from mailwarden.analysis.text.phrases import match_books
from mailwarden.analysis.view import View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.html import HtmlDocument
from mailwarden.message.html_links import Link
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, registrable_domain, written_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Fact, Finding, Omitted
from mailwarden.model.place import WHOLE_MESSAGE, Place

FINDINGS = 5  # of one kind
MANY_DOMAINS = 25
LITTLE_TEXT = 200
BUTTON = 80  # characters of the text on a button
ONE_LINE = 60  # characters beside a link, such as a greeting and a name
# Domains of shared hosting, which identify no owner.
_ANYBODYS = frozenset({HostKind.SHORTENER, HostKind.HOSTING, HostKind.STORAGE, HostKind.DYNAMIC, HostKind.FORM})

_WHOLE_SYLLABLES = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_SCRIPT = re.compile(r"\s*(?:javascript|vbscript):", re.IGNORECASE)
# `javascript:`, `javascript:;`, `javascript://` and `javascript:void(0);`: no two runs of blanks are adjacent.
_IDLE = re.compile(
    r"\s*javascript:(?:\s*(?:void(?:\s*(?:\(0?\)?;?|0\)?;?|\);?|;))?|//;?|;))?\s*$",
    re.IGNORECASE,
)
# Schemes that open a program on the reader's machine, or a file on another machine.
_OPENING = re.compile(
    r"\s*(search-ms|search|ms-msdt|ms-appinstaller|ms-officecmd|ms-search|shell|ms-word|ms-excel|ms-powerpoint|ms-access"
    r"|ms-visio|ms-project|ms-publisher|tel-ms):",
    re.IGNORECASE,
)
_FILE = re.compile(r"\s*(?:file:[/\\]{2,5}|\\\\)([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})(?:@[\w]{1,8})?[/\\]", re.IGNORECASE)
# Of these, schemes that no honest message links to: remote searches, and vulnerabilities that were fixed.
_ATTACKS = frozenset({"search-ms", "ms-search", "ms-msdt", "ms-appinstaller", "ms-officecmd"})
_WRITTEN_ADDRESS = re.compile(r"https?://\S{1,2000}", re.IGNORECASE)
_INNER = re.compile(r"https?://[^\s|\"'<>]{4,2000}", re.IGNORECASE)
_CARRIED = re.compile(r"data:(text/html|text/javascript|application/(?!font|x-font)[a-z0-9.+-]{1,60})", re.IGNORECASE)


class UrlsAnalyzer:
    name: ClassVar[str] = "urls"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        counts: Counter[str] = Counter()
        reported: set[tuple[str, Fact]] = set()
        for (what, facts), place in _notice(view):
            key = (what, facts.get("host", ""))
            if key in reported:
                continue
            reported.add(key)
            counts[what] += 1
            if counts[what] == FINDINGS + 1:
                yield Omitted(f"urls.{what}")
            elif counts[what] <= FINDINGS:
                cut = {name: value[: SHOWN.fact] if isinstance(value, str) else value for name, value in facts.items()}
                yield Finding(f"urls.{what}", place, cut)


def _notice(view: View) -> Iterator[tuple[Noticed, Place]]:
    parties = parties_of(view)
    for link in chosen_links(view):
        for noticed in merge(look_at_address(link[0], parties), link[0], SHOWN.fact):
            yield noticed, link[1]
    words = _asks_to_install(view)
    if words and any(is_fetched(fetched_name(url)) for url, _ in chosen_links(view)):
        yield ("install-request", {"words": words}), WHOLE_MESSAGE
    for noticed in (*leads_home(view), *_is_only_a_link(view, parties)):
        yield noticed, WHOLE_MESSAGE
    locked = [link for link in chosen_links(view) if is_archive(fetched_name(link[0]))]
    if locked and find_passwords(f"{view.subject}\n{view.text}"):
        yield ("encrypted-download", {"file": fetched_name(locked[0][0]), "host": host_of(locked[0][0])}), locked[0][1]
    for page in view.pages:
        for noticed in _look_at_schemes(page.document.links, page.document.data_uris, parties):
            yield noticed, page.place
    for page in view.pages:
        if not page.attached:
            links = [link for link in page.document.links if host_of(link.href)]
            for noticed in look_at_links(links, parties):
                yield noticed, page.place
            for noticed in look_at_pictures(page.document, links, parties):
                yield noticed, page.place


def chosen_links(view: View) -> tuple[tuple[str, Place], ...]:
    """Return address and place of the links, one to each host first, then the others."""
    first: dict[str, tuple[str, Place]] = {}
    others: dict[str, tuple[str, Place]] = {}
    for link in view.links:
        if link.host and first.setdefault(link.host, (link.url, link.place))[0] != link.url:
            others.setdefault(link.url, (link.url, link.place))
    return (*first.values(), *others.values())


def _asks_to_install(view: View) -> str:
    """Return words that have the reader fetch, open or install a file, or ""."""
    found = (matches.get("urls.install-request") for matches in match_books(view.folded_texts))
    return next((match.words for match in found if match), "")


def leads_home(view: View) -> Iterator[Noticed]:
    """Yield a finding if every link leads to the sender's own site, or to it and to the service that sent the message.

    It proves nothing before the sender is authenticated, which policy asks for.
    """
    own = written_domain(view.sender.domain)
    sending_domain = written_domain(domain_of(view.envelope.sender))
    domains: set[str] = set()
    for link in view.links:
        if link.host and not (link.bare and names_file(link.host)):
            host = host_of(destination(link.url))
            domain = registrable_domain(host) or host
            if domain and same_company(own, domain):
                domain = own
            if not domain or domain not in {own, sending_domain}:
                return
            domains.add(domain)
    if not domains or not view.coverage.complete:
        return
    if any(domain in free_mail_domains() or kind_of(domain) in _ANYBODYS for domain in {own, *domains}):
        return
    if domains == {own}:
        yield "own-links", {"host": own}
    else:
        yield "mailing-service", {"host": sending_domain}


def _is_only_a_link(view: View, parties: Parties) -> Iterator[Noticed]:
    """Yield a finding if the message is next to nothing but a link to a third party."""
    hosts = {link.host: link for link in view.links if link.host and not link.loose and not link.bare}
    if len(hosts) != 1 or view.files or any(page.document.images for page in view.pages):
        return
    host = host_of(destination(next(iter(hosts.values())).url))
    rest = _WRITTEN_ADDRESS.sub("", view.own_text).strip()
    if len(rest) + _dense(rest) <= ONE_LINE and parties.is_third_party(host):
        yield "link-only", {"host": host}


def _look_at_schemes(links: tuple[Link, ...], data: tuple[str, ...], parties: Parties) -> Iterator[Noticed]:
    for link in links:
        if _SCRIPT.match(link.href) and not _IDLE.match(link.href):
            yield "script-uri", {}
            break
    for link in links:
        if match := _OPENING.match(link.href):
            scheme, inner = match[1].lower(), _INNER.search(link.href)
            yield "app-scheme", {"scheme": scheme}
            if scheme in _ATTACKS or (inner and parties.is_third_party(host_of(inner[0]))):
                yield "exploit-scheme", {"scheme": scheme}
            break
        if (match := _FILE.match(link.href)) and (public_ip(match[1]) or registrable_domain(match[1].lower())):
            yield "remote-file", {"host": match[1][: SHOWN.fact]}
            if parties.is_third_party(match[1].lower()):
                yield "unrelated-remote-file", {"host": match[1][: SHOWN.fact]}
            break
    for uri in data:
        if match := _CARRIED.match(uri):
            yield "data-uri", {"type": match[1].lower()}


def look_at_links(links: list[Link], parties: Parties) -> Iterator[Noticed]:
    """Examine the links of one page together: their targets and their texts."""
    words = load_link_words()
    hosts = {link.href: host_of(destination(link.href)) for link in links}
    masked = [link for link in links if not shown_host(link.text)]
    domains = {registrable_domain(host) or host for host in hosts.values()}
    if len(domains) > MANY_DOMAINS:
        yield "many-domains", {"count": len(domains)}
    strangers = [link for link in masked if parties.is_third_party(hosts[link.href])]
    if not strangers:
        return
    base_facts = _base_facts(strangers[0], hosts[strangers[0].href])
    if len(domains) == 1:
        yield ("one-unrelated-domain" if len(masked) > 1 else "single-unrelated-link"), base_facts
    elif len(strangers) == len(masked):
        yield "unrelated-links-only", base_facts
    for what, pattern in (("button", words.buttons), ("click-request", words.calls)):
        for link in strangers:
            if link.text and len(link.text) <= BUTTON and pattern.search(link.text.lower()):
                yield what, {"text": link.text[:60], **_base_facts(link, hosts[link.href])}
                break
    texts: dict[str, set[bool]] = {}
    for link in masked:
        texts.setdefault(link.href, set()).add(bool(words.goodbyes.search(link.text.lower())))
    if any(len(kinds) > 1 for kinds in texts.values()):
        yield "false-unsubscribe-link", base_facts
    if len(masked) > 2 and len(texts) == 1:
        yield "identical-links", base_facts
    if any(link.text in {".", ",", "-", "_", "\u200b"} for link in strangers):
        yield "hidden-link", base_facts


def look_at_pictures(document: HtmlDocument, links: list[Link], parties: Parties) -> Iterator[Noticed]:
    """Yield a finding if images replace the text; hidden text does not count."""
    hidden = document.unseen
    shown = len(document.text) - hidden
    if not document.images or shown + (0 if hidden else _dense(document.text)) >= LITTLE_TEXT:
        return
    hosts = (host_of(destination(link.href)) for link in links)
    if host := next((host for host in hosts if parties.is_third_party(host)), None):
        yield "image-only", {"host": host}


def _dense(text: str) -> int:
    """Return how much longer a text would be in letters: a Chinese, Japanese or Korean character counts as three."""
    return 2 * len(
        _WHOLE_SYLLABLES.findall(text[:LITTLE_TEXT])
    )  # not inspection: a count that only asks whether there is little text


def _base_facts(link: Link, host: str) -> dict[str, Fact]:
    return {"host": host, "url": link.href} if len(link.href) <= SHOWN.fact else {"host": host}
