"""What the HTML of a message shows and does: links that mislead, smuggled files, forms for passwords, redirections.

Most mail has nothing of this, and parsing HTML is dear: a page is parsed only where a quick look over its text
cannot rule all of it out.
Security: works on hostile HTML inside a killable worker; findings are bounded, facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links import all_plain, false_name, misleading, public_ip
from mailwarden.message.charsets import decode_text
from mailwarden.message.html import HtmlDocument, read_html
from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Message, Part
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Fact, Finding

MANY_LINKS = 500
FINDINGS = 20  # of one kind in one page
_TOLD = 200  # characters of a fact

_PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml"})
_PAGE_ENDINGS = (".html", ".htm", ".xhtml", ".shtml", ".mht", ".svg")
# How the tags begin that load, run, redirect or ask; a page without them has links at most.
_ACTIVE = frozenset({"scr", "ifr", "fra", "obj", "emb", "are", "svg", "bas"})
# In these charsets every ASCII character is its own byte, so a quick look needs no decoding.
_ASCII_BYTES = frozenset({"", "us-ascii", "ascii", "utf-8", "utf8", "iso-8859-1", "iso-8859-15", "windows-1252"})
_REDIRECTION = re.compile(r"http-equiv\s{0,9}+=\s{0,9}+[\"']?+(?!content-|x-ua-|imagetoolbar|cache-|expires|pragma)")
_DATA = re.compile(r"data:(?!image/(?:png|gif|jpe?g|webp)\b)[a-z]{1,20}+/")
_CARRIED = re.compile(r"data:(text/html|text/javascript|application/(?!font|x-font)[a-z0-9.+-]{1,60})", re.IGNORECASE)
_VEILED_TYPE = re.compile(r"type\s{0,9}+=\s{0,9}+[\"']?+[a-z]{0,20}+&")  # `password` spelled with entities
_PASSWORD = re.compile(r"type\s{0,9}+=\s{0,9}+[\"']?+password")
_LONG_BASE64 = re.compile(r"[a-z0-9+/]{1000}")
_IDLE = re.compile(r"javascript:\s*+(?:void\s*+\(?0?\)?)?;?\s*+$", re.IGNORECASE)


class HtmlAnalyzer:
    name: ClassVar[str] = "html"

    def examine(self, message: Message) -> Iterator[Finding]:
        for part in message.parts:
            if part.media_type in _PAGE_TYPES or part.name.lower().endswith(_PAGE_ENDINGS):
                yield from examine_page(part)


def examine_page(part: Part) -> Iterator[Finding]:
    attached = part.disposition == "attachment" or part.name.lower().endswith(_PAGE_ENDINGS)
    if not attached and part.charset in _ASCII_BYTES and nothing_to_see(part.content):
        return
    text = decode_text(part.content, part.charset)
    page, lower = read_html(text), text.lower()
    seen: dict[str, set[tuple[Fact, ...]]] = {}
    for what, facts in _look(page, lower, attached=attached):
        known = seen.setdefault(what, set())
        values = tuple(facts.values())
        if values not in known and len(known) < FINDINGS:
            known.add(values)
            cut: dict[str, Fact] = {"name": part.name[:_TOLD]} if part.name else {}
            cut |= {key: value[:_TOLD] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"html.{what}", part.place, cut)


def nothing_to_see(content: bytes) -> bool:
    """Rule out, without parsing, everything that this analyzer looks for."""
    if len(content) > LIMITS.html or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    lower = content.lower().decode("latin-1")
    tags = {piece[:3] for piece in lower.split("<")}
    return (
        tags.isdisjoint(_ACTIVE)
        and not ("inp" in tags and ("password" in lower or _VEILED_TYPE.search(lower)))
        and not ("met" in tags and _REDIRECTION.search(lower))
        and not ("data:" in lower and _DATA.search(lower))
        and lower.count("href") <= MANY_LINKS
        and all_plain(lower)
    )


def _look(page: HtmlDocument, lower: str, *, attached: bool) -> Iterator[tuple[str, dict[str, Fact]]]:
    if page.cut:
        yield "limit", {"sentence": "it is longer, deeper or has more links than are read"}
    if len(page.links) > MANY_LINKS:
        yield "many-links", {"count": len(page.links)}
    for link in page.links:
        yield from _look_at_link(link.href, link.text)
    for uri in page.data_uris:
        if match := _CARRIED.match(uri):
            yield "data-link", {"type": match[1].lower()}
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


def _look_at_link(href: str, text: str) -> Iterator[tuple[str, dict[str, Fact]]]:
    if found := misleading(href, text):
        yield "link-mismatch", {"shown": found[0], "host": found[1], **_address(href)}
    if href[:11].lower() == "javascript:" and not _IDLE.match(href):
        yield "javascript-link", {}
    host = host_of(href)
    if public_ip(host):
        yield "ip-link", {"host": host, **_address(href)}
    if name := false_name(href):
        yield "userinfo-link", {"userinfo": name[:60], "host": host, **_address(href)}


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
    if ".download" in lower and "data:application/" in lower and ".click(" in lower:
        return "it downloads a file from a data address"
    return ""
