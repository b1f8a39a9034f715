"""Addresses in a web page: everything that a client makes clickable or loads, in HTML, SVG, VML and CSS.

Security: works on hostile attributes; every pattern is linear, and nothing is fetched.
"""

import binascii
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote_to_bytes, urljoin

from msgspec import Struct

# Attributes with one address that is loaded or opened along with the page, in HTML, SVG and VML.
LOADED = (
    "src", "background", "poster", "data", "dynsrc", "lowsrc", "longdesc", "cite", "ping", "codebase", "classid",
    "archive", "code", "manifest", "icon", "profile", "movie", "usemap", "imagemap", "pluginspage", "datasrc",
    "attributionsrc",
)  # fmt: skip
LISTED = ("srcset", "imagesrcset")
ANIMATED = ("to", "from", "values", "by")  # SVG animations may set the address of a link
_LOADING_TAGS = frozenset(
    {"link", "image", "use", "feimage", "mpath", "pattern", "lineargradient", "radialgradient", "textpath", "tref",
     "script", "filter", "cursor", "font-face-uri", "v:imagedata", "v:fill", "v:image", "base"}
)  # fmt: skip
_C0 = "".join(map(chr, range(0x21)))
_BREAKS = re.compile(r"[\t\r\n]")
_CSS_URL = re.compile(
    r"""url\(\s{0,99}(?:"([^"]*)"|'([^']*)'|([^)"'\s]*))|(?:@import|src\(|image-set\(|image\()\s{0,99}["']([^"']*)["']""",
    re.IGNORECASE,
)
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})[ \t\r\n\f]?|\r?\n|(.))")
_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
CSS_HINTS = ("url(", "@import", "image", "src(")
_REFRESH = re.compile(
    r"\s*[\d.]*\s*(?:[;,]\s*|\s)(?:url\s*=\s*)?(?:\"([^\"]*)|'([^']*)|(\S.*))", re.IGNORECASE | re.DOTALL
)
_CANDIDATE = re.compile(r"[^\s,]\S*[^\s,]|[^\s,]")
_DATA = re.compile(r"data:([^,;]{0,200})((?:;[^,;]{0,300}){0,20}),", re.IGNORECASE)
_CHARSET = re.compile(r"charset=\"?([\w.:-]{1,40})", re.IGNORECASE)
_PAGES = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml"})
_STYLE = "text/css"


class Link(Struct, frozen=True):
    """A link or load of a page: the address, its visible text, and its tag."""

    href: str
    text: str
    tag: str = "a"


def clean_address(value: str) -> str:
    """Return an address as browsers parse it: without control characters and spaces around it or line ends in it."""
    value = value.strip(_C0)
    return _BREAKS.sub("", value) if _BREAKS.search(value) else value


def addresses_of(tag: str, attributes: Mapping[str, str | None]) -> Iterator[tuple[str, bool]]:
    """Yield the addresses in the attributes of one element, each with whether it is clickable."""
    for name, value in attributes.items():
        if not value:
            continue
        bare = name.rpartition(":")[2].lower()
        if bare == "href":
            yield value, tag not in _LOADING_TAGS
        elif bare in ("action", "formaction"):
            yield value, True
        elif bare in LOADED:
            yield value, False
        elif bare in LISTED:
            yield from ((candidate, False) for candidate in read_srcset(value))
        elif bare in ANIMATED and tag in ("animate", "set", "animatetransform"):
            yield from ((each, True) for each in value.split(";") if ":" in each or "//" in each)
        elif bare == "value" and tag == "param" and "/" in value:
            yield value, False


def read_srcset(value: str) -> Iterator[str]:
    """Yield the addresses of a srcset attribute (HTML 4.8.4.2.1): each is followed by an optional size."""
    for candidate in value.split(", "):
        if found := _CANDIDATE.search(candidate):
            yield found.group()


def css_addresses(style: str) -> Iterator[str]:
    """Yield the addresses that a style loads (CSS Syntax 4.3.6); escapes are decoded first, as they may hide `url`."""
    style = plain_style(style)
    lower = style.lower()
    if any(hint in lower for hint in CSS_HINTS):
        for match in _CSS_URL.finditer(style):
            if found := match[1] or match[2] or match[3] or match[4]:
                yield found


def plain_style(style: str) -> str:
    """Return a style without comments and escapes."""
    if "/*" in style:
        style = _CSS_COMMENT.sub(" ", style)
    return _CSS_ESCAPE.sub(_unescaped, style) if "\\" in style else style


def refresh_target(content: str) -> str:
    """Return the target of `<meta http-equiv=refresh>`, or "" if it reloads the same page (HTML 4.2.5.3)."""
    match = _REFRESH.match(content)
    return clean_address(match[1] or match[2] or match[3] or "") if match else ""


def skip_prolog(text: str) -> int:
    """Return where the first element of a page or drawing begins, behind white space, comments and declarations."""
    place = 0
    while True:
        while text[place : place + 1].isspace() or text[place : place + 1] == "\ufeff":
            place += 1
        if text.startswith("<!--", place):
            end = text.find("-->", place + 4)
            place = end + 3 if end >= 0 else len(text)
        elif text.startswith("<?", place):
            end = text.find(">", place)
            place = end + 1 if end >= 0 else len(text)
        elif text[place : place + 9].lower() == "<!doctype" and "html" not in text[place + 9 : place + 20].lower():
            end = text.find(">", place)
            subset = text.find("[", place, end)
            end = text.find("]>", subset) + 1 if subset >= 0 else end
            place = end + 1 if end > 0 else len(text)
        else:
            return place


def carried_page(uri: str) -> tuple[bytes, str] | None:
    """Return the content and charset of a page that a data URI carries (RFC 2397), or None where it carries none.

    A style becomes the page that holds it.
    """
    match = _DATA.match(uri)
    if match is None or match[1].strip().lower() not in (*_PAGES, _STYLE):
        return None
    charset = _CHARSET.search(match[2])
    content = unquote_to_bytes(uri[match.end() :])
    if "base64" in match[2].lower():
        content = _decode_base64(content)
    if match[1].strip().lower() == _STYLE:
        content = b"<style>" + content
    return content, charset[1] if charset else ""


def join_address(base: str, href: str) -> str:
    """Return an address as a browser follows it; a relative one is resolved against the base."""
    if not base or href.startswith("#"):
        return href
    try:
        return urljoin(base, href)
    except ValueError:
        return href


def _decode_base64(content: bytes) -> bytes:
    content = content.translate(None, b" \t\r\n").rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    content = content[: len(content) - 1] if len(content) % 4 == 1 else content
    try:
        return binascii.a2b_base64(content + b"==")
    except binascii.Error:
        return content


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        code = int(match[1], 16)
        return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    return match[2] or ""
