"""Recognises proper newsletters: their headers say so, and one click unsubscribes.

These findings accuse no message: a newsletter is delivered. A message in the form of a newsletter without an identified
sender gets no finding here, so that the form alone excuses nothing.

Security: works on hostile headers and text inside a killable worker; every pattern is linear.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.analysis.view import SeenLink, View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, registrable_domain, written_domain
from mailwarden.model.evidence import Finding

MANY_LINKS = 8
MANY_PICTURES = 3
LENGTH = 1_000  # characters of an edited text
LONG_READ = 4_000  # characters; an advertisement for one thing is shorter
SOME_LINKS = 5
OWN_LINKS = 3  # different ones to the sender's own site; and most of all links
_BULK = frozenset({"bulk", "list", "junk"})
_WEB = re.compile(r"<\s{0,9}https://", re.IGNORECASE)
# RE2 looks for all alternatives at once, which these long patterns need.
_LEAVING = (
    r"unsubscri|opt[- ]?out|abmeld|abbestell|austragen|desabon|desinscri|désinscri|désabon|darse de baja"
    r"|cancelar (?:la )?susc|descadastr|disiscri|cancella l|afmelden|uitschrij|wypisz|odhlás|отписа|退订|配信停止"
    r"|zrezygnuj|abonelikten|listeden çık"
    r"|cancelar (?:a )?(?:inscri|subscri|assinatura)|annulla(?:re)? l.iscrizione|メール配信を?(?:停止|解除)"
    r"|email preferences|manage (?:your )?(?:preferences|subscription)|update (?:your )?preferences"
)
_LEAVE = re2.compile(f"(?i){_LEAVING}")
# In plain text the words come before the address, on the same line or up to two lines earlier.
_LEAVE_BY = re2.compile(rf"(?i)(?:{_LEAVING})[^\n]{{0,200}}(?:\n[^\n]{{0,200}}){{0,2}}?(https?://[^\s<>\"]{{1,500}})")
_BROWSER = re2.compile(
    r"(?i)view (?:this |it )?(?:e-?mail |message |newsletter )?(?:online|in (?:your |a )?(?:web )?browser)|web ?version"
    r"|im browser (?:an(?:sehen|zeigen)|öffnen)|online-?version|version en ligne|dans (?:votre |le )navigateur"
    r"|ver en (?:el |su )?navegador|ver no navegador|visualizza nel browser|bekijk online"
)
_EDITED = re.compile(
    r"\bnewsletter|\bdigest\b|\bissue (?:no\.?|#)? ?\d|\bbulletin\b|\bin this (?:issue|edition)\b", re.IGNORECASE
)


class NewsletterAnalyzer:
    name: ClassVar[str] = "newsletter"

    def examine(self, view: View) -> Iterator[Finding]:
        leave = view.message.header("list-unsubscribe")
        if leave:
            post = view.message.header("list-unsubscribe-post").replace(" ", "").lower()
            one_click = bool(_WEB.search(leave)) and post == "list-unsubscribe=one-click"
            yield Finding("newsletter.one-click-unsubscribe" if one_click else "newsletter.unsubscribe-header")
        if view.message.header("precedence").strip().lower() in _BULK:
            yield Finding("newsletter.precedence")
        if view.message.header("feedback-id") or view.message.header("x-csa-complaints"):
            yield Finding("newsletter.mailing-service")
        yield from _structure(view)


def _structure(view: View) -> Iterator[Finding]:
    """Yield the features of newsletters, also if a relay removed their headers."""
    links = [link for link in view.links if link.host and not link.bare]
    own = written_domain(view.sender.domain)
    way_out = [link.host for link in _ways_out(links)]
    if not way_out and (len(links) >= SOME_LINKS or view.message.header("list-unsubscribe")):
        way_out = _ways_out_of_text(view)
    if way_out:
        yield Finding("newsletter.unsubscribe-link", facts={"host": way_out[0][: SHOWN.fact]})
        if own and any(registrable_domain(host) == own for host in way_out):
            yield Finding("newsletter.own-unsubscribe-link", facts={"host": own})
    if _leads_home(links, own):
        yield Finding("newsletter.own-links", facts={"host": own[: SHOWN.fact]})
    head = f"{view.subject} {view.text[:LENGTH]}"  # not inspection: newsletters introduce themselves at their beginning
    if _BROWSER.search(head):
        yield Finding("newsletter.browser-link")
    if _EDITED.search(head) or _EDITED.search(view.sender.name):
        yield Finding("newsletter.issue-wording")
    shown = len(view.text) - view.unseen
    if len(links) >= SOME_LINKS and shown >= LONG_READ:
        yield Finding("newsletter.long-text", facts={"links": len(links)})
    if len(links) >= MANY_LINKS and len(view.text) >= LENGTH:
        pictures = sum(len(page.document.images) for page in view.pages)
        if pictures >= MANY_PICTURES:
            yield Finding("newsletter.layout", facts={"pictures": pictures})


def is_mailing(view: View) -> bool:
    """Return whether a message has the form of a mailing: it can be unsubscribed, or most links lead home."""
    if view.message.header("list-unsubscribe"):
        return True
    links = [link for link in view.links if link.host and not link.bare]
    return _leads_home(links, written_domain(view.sender.domain)) or bool(_ways_out(links))


def _ways_out(links: list[SeenLink]) -> list[SeenLink]:
    """Return the unsubscribe links; one search is enough for most messages, which have none."""
    texts = [f"{link.text} {link.url}" for link in links]
    if not _LEAVE.search("\n".join(texts)):
        return []
    return [link for link, text in zip(links, texts, strict=True) if _LEAVE.search(text)]


def _ways_out_of_text(view: View) -> list[str]:
    """Return the host that a plain text names after words about leaving."""
    if any(not page.attached for page in view.pages) or not (found := _LEAVE_BY.search(view.plain_text)):
        return []
    return [host] if (host := host_of(found[1])) else []


def _leads_home(links: list[SeenLink], own: str) -> bool:
    """Return whether most links lead to the sender's own site, which is neither a mail service nor rented space."""
    if not own or own in free_mail_domains() or kind_of(own) not in (HostKind.KNOWN, HostKind.OTHER):
        return False
    home = {link.url for link in links if link.domain == own}
    return len(home) >= OWN_LINKS and 2 * len(home) >= len({link.url for link in links})
