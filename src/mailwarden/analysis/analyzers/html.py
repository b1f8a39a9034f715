"""What the HTML of a message shows and does: links that mislead, smuggled files, forms for passwords, redirections.

Security: works on hostile HTML inside a killable worker; findings are bounded, facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links import misleading
from mailwarden.analysis.view import Page, View
from mailwarden.message.html import HtmlDocument
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Fact, Finding

MANY_LINKS = 500
FINDINGS = 20  # of one kind in one page
_TOLD = 200  # characters of a fact

_PASSWORD = re.compile(r"type\s{0,9}+=\s{0,9}+[\"']?+password")
_LONG_BASE64 = re.compile(r"[a-z0-9+/]{1000}")
_LONG_CODES = re.compile(r"(?:%[0-9a-f]{2}){200}|(?:\\x[0-9a-f]{2}){200}|(?:\\u[0-9a-f]{4}){200}")


class HtmlAnalyzer:
    name: ClassVar[str] = "html"

    def examine(self, view: View) -> Iterator[Finding]:
        for page in view.pages:
            yield from examine_page(page)


def examine_page(page: Page) -> Iterator[Finding]:
    part = page.part
    seen: dict[str, set[tuple[Fact, ...]]] = {}
    for what, facts in _look(page.document, page.lower, attached=page.attached):
        known = seen.setdefault(what, set())
        values = tuple(facts.values())
        if values not in known and len(known) < FINDINGS:
            known.add(values)
            cut: dict[str, Fact] = {"name": part.name[:_TOLD]} if part.name else {}
            cut |= {key: value[:_TOLD] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"html.{what}", part.place, cut)


def _look(page: HtmlDocument, lower: str, *, attached: bool) -> Iterator[tuple[str, dict[str, Fact]]]:
    if page.cut:
        yield "limit", {"sentence": "it is longer, deeper or has more links than are read"}
    if len(page.links) > MANY_LINKS:
        yield "many-links", {"count": len(page.links)}
    for link in page.links:
        if found := misleading(link.href, link.text):
            yield "link-mismatch", {"shown": found[0], "host": found[1], **_address(link.href)}
    for target in page.refreshes:
        yield "meta-refresh", {"host": host_of(target) or "another page", **_address(target)}
    passwords = [form for form in page.forms if form.has_password]
    for form in passwords:
        yield "credential-form", {"host": host_of(form.action) or "a script", **_address(form.action)}
    if not passwords and "<input" in lower and _PASSWORD.search(lower):
        yield "credential-form", {"host": "a script"}
    if page.scripts and attached:
        yield "script-attachment", {}
    if how := smuggling(lower):
        yield "smuggling", {"how": how}


def _address(href: str) -> dict[str, Fact]:
    """Return the link itself, by which a list may allow it; one too long to be told whole can be allowed by none."""
    return {"url": href} if len(href) <= _TOLD and host_of(href) else {}


def smuggling(lower: str) -> str:
    """Say how a script puts a file or a page together from what is hidden in the text, or ""."""
    if "<script" not in lower and "javascript:" not in lower:
        return ""
    decodes = "atob(" in lower or "fromcharcode" in lower or "uint8array" in lower or bool(_LONG_BASE64.search(lower))
    if "blob" in lower and ("createobjecturl" in lower or "mssaveoropenblob" in lower) and decodes:
        return "it saves a decoded blob"
    if "document.write" in lower and ("atob(" in lower or "unescape(" in lower) and _LONG_BASE64.search(lower):
        return "it writes a decoded page"
    if ("document.write" in lower or "innerhtml" in lower or "eval(" in lower) and _LONG_CODES.search(lower):
        return "it writes a page from codes"
    if ".download" in lower and "data:application/" in lower and ".click(" in lower:
        return "it downloads a file from a data address"
    return ""
