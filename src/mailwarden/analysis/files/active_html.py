"""Finds active content in attached HTML and SVG: frames, remote scripts, exfiltration, clipboard, redirects.

Security: works on hostile pages inside a killable worker; every pattern is linear and bounded, and it never raises.
"""

import re
from collections.abc import Iterator

from mailwarden.analysis.links.targets import Noticed, Parties
from mailwarden.message.html import HtmlDocument
from mailwarden.message.html_links import skip_prolog
from mailwarden.message.urls import host_of, registrable_domain
from mailwarden.model.evidence import Fact

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


def find_active_content(page: HtmlDocument, lower: str, parties: Parties) -> Iterator[Noticed]:
    """Yield what an attached page does; an SVG is a page to the browser and an image to its reader."""
    if is_drawing(lower):
        yield from _look_at_drawing(page, lower, parties)
    if len(page.text) < LITTLE_TEXT and (host := _third_party(page.frames, parties)):
        yield "framing-page", {"host": host}
    if len(page.text) < NO_TEXT and (host := _third_party(page.scripts, parties)) and not _is_library(host):
        yield "loaded-page", {"host": host}
    if len(page.text) < NO_TEXT and len(lower) < SMALL and not is_drawing(lower) and (how := _how_it_acts(page, lower)):
        yield "hollow-page", {"how": how}
    if _REPORTS.search(lower):
        yield "reporting-page", {}
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
        yield "active-picture", {"how": "it holds a script"}
    elif _HANDLER.search(lower) or _RUNS.search(lower):
        yield "active-picture", {"how": "it runs something when it is shown or clicked"}
    elif page.frames or page.forms or "<iframe" in lower:
        yield "active-picture", {"how": "it holds a frame or a form"}
    if host := _third_party([link.href for link in page.links], parties):
        yield "picture-link", {"host": host}


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
