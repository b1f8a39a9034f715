"""Reports dangerous HTML: misleading links, HTML smuggling, password forms, redirects.

Security: works on hostile HTML inside a killable worker; findings are bounded, facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.files.active_html import asks_by_text, find_active_content
from mailwarden.analysis.links.hosts import misleading
from mailwarden.analysis.links.targets import Parties, parties_of
from mailwarden.analysis.view import Page, View
from mailwarden.message.html import HtmlDocument
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Fact, Finding, Omitted

MANY_LINKS = 500
FINDINGS = 20  # of one kind in one page

_LONG_BASE64 = re.compile(r"[a-z0-9+/]{1000}")
_SAVES = ("createobjecturl", "mssaveoropenblob", "mssaveblob", "readasdataurl", "saveas(")
_LONG_CODES = re.compile(r"(?:%[0-9a-f]{2}){200}|(?:\\x[0-9a-f]{2}){200}|(?:\\u[0-9a-f]{4}){200}")

_SENDS_ON = re.compile(
    r"(?<![\w$])location(?:\.href)?\s{0,5}=(?!=)|location\.(?:replace|assign)\(|\[[\"']location[\"']\]"
    r"|window\.open\([^()]{0,2000}_self"
)
_HANDLER_SENDS_ON = re.compile(r"\bon(?:load|error|click|focus|mouseover)\s{0,5}=\s{0,5}[\"'][^\"']{0,200}location")
_ANCHOR = re.compile(r"<a\s([^<>]+)")
_FEW = 3  # an archive of so few files is made around one of them
_HOLLOW = "html.hollow-page"
_MACHINE_NAME = re.compile(r"\b_0x[0-9a-f]{4,6}\b")


class HtmlAnalyzer:
    name: ClassVar[str] = "html"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        parties = parties_of(view)
        crowds = {one.part.path for one in view.unpacked if len(one.files) > _FEW}
        for page in view.pages:
            found = examine_page(page, parties)
            # The first page of a manual only redirects to the files beside it.
            yield from (each for each in found if each.name != _HOLLOW or page.part.path not in crowds)
            if page.attached and any(each.lower() in page.lower for each in view.recipients if "@" in each):
                name = page.part.name[: SHOWN.fact] or "without a name"
                yield Finding("html.victim-page", page.place, {"name": name})


def examine_page(page: Page, parties: Parties) -> Iterator[Finding | Omitted]:
    seen: dict[str, set[tuple[Fact, ...]]] = {}
    for what, facts in _look(page.document, page.lower, parties, attached=page.attached):
        known = seen.setdefault(what, set())
        values = tuple(facts.values())
        if values in known:
            continue
        known.add(values)
        if len(known) == FINDINGS + 1:
            yield Omitted(f"html.{what}", page.place)
        elif len(known) <= FINDINGS:
            cut: dict[str, Fact] = {"name": page.part.name[: SHOWN.fact]} if page.part.name else {}
            cut |= {key: value[: SHOWN.fact] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"html.{what}", page.place, cut)


def _look(page: HtmlDocument, lower: str, parties: Parties, *, attached: bool) -> Iterator[tuple[str, dict[str, Fact]]]:
    if len(page.links) > MANY_LINKS:
        yield "many-links", {"count": len(page.links)}
    for link in page.links:
        if found := misleading(link.href, link.text):
            # Many mailings link through a click counter of the sender or of a sending service.
            what = "link-mismatch" if parties.is_third_party(found[1]) else "link-detour"
            yield what, {"shown": found[0], "host": found[1], **_address(link.href)}
    for target in page.refreshes:
        yield "meta-refresh", {"host": host_of(target) or "another page", **_address(target)}
    passwords = [form for form in page.forms if form.has_password]
    for form in passwords:
        yield "credential-form", {"host": host_of(form.action) or "a script", **_address(form.action)}
    if not passwords and page.asks_password:
        yield "credential-form", {"host": "a script"}
    if attached:
        yield from _look_at_attached(page, lower)
        yield from find_active_content(page, lower, parties)
        if not passwords and (asked := asks_by_text(page, lower)):
            yield "credential-form", asked
    if how := smuggling(lower):
        yield "smuggling", {"how": how}


def _look_at_attached(page: HtmlDocument, lower: str) -> Iterator[tuple[str, dict[str, Fact]]]:
    """Yield what an attached page does; it opens in the browser without the limits of a mail client."""
    if page.scripts:
        yield "script-attachment", {}
        if how := disguise(lower):
            yield "disguised-script", {"how": how}
    if (page.scripts and _SENDS_ON.search(lower)) or (page.handlers and _HANDLER_SENDS_ON.search(lower)):
        yield "script-redirect", {}
    if any("download" in each and "data:application/" in each for each in _ANCHOR.findall(lower)):
        yield "smuggling", {"how": "it offers a file from a data address"}


def _address(href: str) -> dict[str, Fact]:
    """Return the link as a fact, so that a list can allow it; a link too long for a fact is left out."""
    return {"url": href} if len(href) <= SHOWN.fact and host_of(href) else {}


def disguise(lower: str) -> str:
    """Return how a script obfuscates its code, or ""."""
    if len(_MACHINE_NAME.findall(lower)) >= 10:
        return "its names were replaced by a machine"
    unpacks = "atob(" in lower or "unescape(" in lower or "fromcharcode(" in lower or "decodeuricomponent(" in lower
    if unpacks and ("eval(" in lower or "new function(" in lower):
        return "it runs what it unpacks"
    if unpacks and "document.write" in lower:
        return "it writes what it unpacks"
    if "webassembly." in lower and ("atob(" in lower or "uint8array" in lower):
        return "it runs the code of a machine"
    if "location" in lower and (
        "location.replace(atob(" in lower or "location.href=atob(" in lower or "=atob(" in lower
    ):
        return "it goes where it has unpacked"
    return ""


def smuggling(lower: str) -> str:
    """Return how a script puts a file or a page together from what is hidden in the text, or ""."""
    if "<script" not in lower and "javascript:" not in lower:
        return ""
    decodes = "atob(" in lower or "fromcharcode" in lower or "uint8array" in lower or bool(_LONG_BASE64.search(lower))
    makes_file = "blob" in lower or "new file(" in lower
    if makes_file and any(word in lower for word in _SAVES) and decodes:
        return "it saves a decoded blob"
    if "document.write" in lower and ("atob(" in lower or "unescape(" in lower) and _LONG_BASE64.search(lower):
        return "it writes a decoded page"
    if ("document.write" in lower or "innerhtml" in lower or "eval(" in lower) and _LONG_CODES.search(lower):
        return "it writes a page from codes"
    if ".download" in lower and "data:application/" in lower and ".click(" in lower:
        return "it downloads a file from a data address"
    return ""
