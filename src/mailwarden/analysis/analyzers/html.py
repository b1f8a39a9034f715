"""Reports dangerous HTML: misleading links, HTML smuggling, password forms, redirects, active content in files.

Security: works on hostile HTML inside a killable worker; every pattern is linear and bounded, findings are bounded, and
facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.links.hosts import misleading
from mailwarden.analysis.links.targets import Noticed, Parties, parties_of
from mailwarden.analysis.text.renderings import Page
from mailwarden.analysis.view import View
from mailwarden.message.html import HtmlDocument
from mailwarden.message.html_links import skip_prolog
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, registrable_domain
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
_HOLLOW = "html.empty-active-page"
_MACHINE_NAME = re.compile(r"\b_0x[0-9a-f]{4,6}\b")
LITTLE_TEXT = 200  # characters that a page shows which leaves everything to another
NO_TEXT = 40
SMALL = 300_000  # characters of a page; reports that carry their library within are larger

_HANDLER = re.compile(r"<[a-z][a-z0-9:]{0,30}\s[^<>]{0,4000}?\bon[a-z]{3,20}\s{0,5}=")
_RUNS = re.compile(r"href\s{0,5}=\s{0,5}[\"']\s{0,5}(?:javascript:|data:text/html)")
# Phishing pages send typed passwords to a chat by its bot API.
_REPORTS = re.compile(r"api\.telegram\.org/bot|discord(?:app)?\.com/api/webhooks/")
_COPIES = re.compile(r"clipboard\.writetext|execcommand\(\s{0,5}[\"']copy[\"']")
_COMMAND = re.compile(
    r"\bpowershell|\bmshta\b|\bmsiexec\b|\bcmd(?:\.exe)? {0,5}/[ck]\b|\brundll32\b|\binvoke-(?:webrequest|expression)"
    r"|\|\s{0,5}(?:ba|z)?sh\b|win(?:dows)?(?:[ -]key)? {0,5}\+ {0,5}(?:<[^<>]{0,50}>)?r\b"
)
# Libraries that draw charts and maps on pages without text.
_DRAWS = re.compile(
    r"^(?:https?:)?//[^\s]{0,250}(?:plotly|plot\.ly|leaflet|folium|bokeh|vega|d3(?:js|\.|@|/)|chart|echarts|three|vis-network"
    r"|mathjax|mermaid|reveal|openlayers|cytoscape)",
    re.IGNORECASE,
)
# Names of text fields that take a password.
_PASSWORD_FIELD = re.compile(
    r"<input\b[^<>]{0,500}?\b(?:name|id|placeholder)\s{0,5}=\s{0,5}[\"']?[^\"'<>]{0,40}?"
    r"(?:password|passwd|passwort|kennwort|mot de passe|contrase|senha|wachtwoord|пароль)"
)
# Hosts from which generated reports load their libraries.
_LIBRARIES = frozenset(
    (  # noqa: SIM905 - as a list of quoted words it would fill the screen
        "jsdelivr.net unpkg.com cloudflare.com jquery.com plot.ly bokeh.org pydata.org bootstrapcdn.com googleapis.com "
        "gstatic.com d3js.org mathjax.org fontawesome.com microsoft.com aspnetcdn.com highcharts.com amcharts.com"
    ).split()
)


class HtmlAnalyzer:
    name: ClassVar[str] = "html"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        parties = parties_of(view)
        crowds = {one.part.path for one in view.unpacked if len(one.files) > _FEW}
        for page in view.pages:
            found = examine_page(page, parties)
            # The first page of a manual only redirects to the files beside it.
            yield from (each for each in found if each.name != _HOLLOW or page.part.path not in crowds)
            if page.attached and any(
                recipient.lower() in page.lower for recipient in view.recipients if "@" in recipient
            ):
                name = page.part.name[: SHOWN.fact] or "without a name"
                yield Finding("html.personalised-page", page.place, {"name": name})


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
            what = "link-mismatch" if parties.is_third_party(found[1]) else "link-mismatch-redirect"
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
            yield "obfuscated-script", {"how": how}
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


def find_active_content(page: HtmlDocument, lower: str, parties: Parties) -> Iterator[Noticed]:
    """Yield what an attached page does; an SVG is a page to the browser and an image to its reader."""
    if is_drawing(lower):
        yield from _look_at_drawing(page, lower, parties)
    if len(page.text) < LITTLE_TEXT and (host := _third_party(page.frames, parties)):
        yield "iframe-page", {"host": host}
    if len(page.text) < NO_TEXT and (host := _third_party(page.scripts, parties)) and not _is_library(host):
        yield "remote-script-page", {"host": host}
    if len(page.text) < NO_TEXT and len(lower) < SMALL and not is_drawing(lower) and (how := _how_it_acts(page, lower)):
        yield "empty-active-page", {"how": how}
    if _REPORTS.search(lower):
        yield "chat-exfiltration-page", {}
    if _COPIES.search(lower) and (command := _COMMAND.search(lower)):
        yield "clipboard-command", {"command": command[0]}


def _how_it_acts(page: HtmlDocument, lower: str) -> str:
    """Return what a page without text does, or "" if it does nothing or draws by a known library."""
    if page.scripts:
        return "" if any(map(_DRAWS.search, page.scripts)) else "it runs a script"
    if page.handlers:
        return "it runs something when it is shown"
    if any(host_of(target) or target[:5].lower() == "data:" for target in page.refreshes):
        return "it leads on at once"
    return "it holds another page" if "srcdoc" in lower else ""


def asks_by_text(page: HtmlDocument, lower: str) -> dict[str, Fact] | None:
    """Return the host that receives a password typed into a text field, or None."""
    if not _PASSWORD_FIELD.search(lower):
        return None
    actions = [form.action for form in page.forms if host_of(form.action)]
    return {"host": host_of(actions[0])} if actions else None


def is_drawing(lower: str) -> bool:
    return lower.startswith("<svg", skip_prolog(lower))


def _look_at_drawing(page: HtmlDocument, lower: str, parties: Parties) -> Iterator[Noticed]:
    if page.scripts or "<script" in lower:
        yield "active-svg", {"how": "it holds a script"}
    elif _HANDLER.search(lower) or _RUNS.search(lower):
        yield "active-svg", {"how": "it runs something when it is shown or clicked"}
    elif page.frames or page.forms or "<iframe" in lower:
        yield "active-svg", {"how": "it holds a frame or a form"}
    if host := _third_party([link.href for link in page.links], parties):
        yield "svg-link", {"host": host}


def _third_party(addresses: tuple[str, ...] | list[str], parties: Parties) -> str:
    """Return the first host among addresses that belongs to a stranger, or ""."""
    for address in addresses:
        is_web = address.lstrip()[:4].lower() == "http" or address.lstrip()[:2] == "//"
        host = host_of(address) if is_web else ""
        if host and parties.is_third_party(host):
            return host
    return ""


def _is_library(host: str) -> bool:
    return registrable_domain(host) in _LIBRARIES
