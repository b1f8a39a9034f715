"""What an HTML body holds: links with their visible text, forms, scripts, frames, data URIs, hidden text.

Security: parses hostile HTML with lexbor inside a killable worker; every list is bounded, and it never raises.
"""

import re
from typing import NamedTuple
from urllib.parse import urljoin

from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mailwarden.message.limits import LIMITS, Limits

# What takes an element out of sight, in lower case, each with the word without which it need not be looked for.
_ZERO = r"\s{0,9}:\s{0,9}0(?![.\d]*[1-9])"
_NOT_SHOWN = (
    ("none", re.compile(r"display\s{0,9}:\s{0,9}none")),
    ("hidden", re.compile(r"visibility\s{0,9}:\s{0,9}hidden")),
    ("opacity", re.compile(rf"opacity{_ZERO}")),
    ("text-indent", re.compile(r"text-indent\s{0,9}:\s{0,9}-\d{3}")),
    ("max-height", re.compile(rf"max-height{_ZERO}")),
)
_NO_SIZE = re.compile(rf"font-size{_ZERO}")
_LEFT_OUT = re.compile(r"mso-hide\s{0,9}:\s{0,9}all")
_TINY = re.compile(r"font(?:-size)?\s{0,9}:\s{0,9}[01](?:\.\d{1,3})?\s{0,3}(?:px|pt|%|;|!|$)")
_PALE = re.compile(
    r"(?<![\w-])color\s{0,9}:\s{0,9}(?:#fff(?:fff)?\b|#f[c-f]f[c-f]f[c-f]\b|white\b|transparent|"
    r"rgba?\(\s{0,3}25[0-5]\s{0,3},\s{0,3}25[0-5]\s{0,3},\s{0,3}25[0-5])"
)
_PALE_WORDS = ("#f", "white", "transparent", "rgb")
_WHITES = frozenset({"#ffffff", "#fff", "white", "#fefefe"})
_TAG = re.compile(r"<[a-zA-Z!/]")
_DEPTH_TAGS = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,30})")
_REFRESH = re.compile(r"url\s{0,9}=\s{0,9}[\"']?([^\"'\s>]{1,8192})", re.IGNORECASE)
_HANDLERS = ("onload", "onclick", "onerror", "onsubmit", "onmouseover", "onfocus")
_TEXT = 1_000
_ENOUGH = 20_000  # characters of hidden text that are counted
_NODES = 200_000


class _Look(NamedTuple):
    """What the style of an element does to it."""

    hidden: bool
    gone: bool
    tiny: bool
    pale: bool


class Link(Struct, frozen=True):
    """A place the reader can be led to: the address as written, the text that is seen, the tag it stands in."""

    href: str
    text: str
    tag: str = "a"


class Form(Struct, frozen=True):
    action: str
    method: str
    has_password: bool


class HtmlDocument(Struct, frozen=True):
    links: tuple[Link, ...] = ()
    forms: tuple[Form, ...] = ()
    scripts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    refreshes: tuple[str, ...] = ()
    data_uris: tuple[str, ...] = ()  # the first bytes of each, enough to tell the type
    images: tuple[str, ...] = ()
    handlers: int = 0  # attributes such as onclick
    hidden: int = 0  # elements whose style hides them
    gone_text: int = 0  # characters in elements that are not shown
    tiny_text: int = 0  # characters too small to be seen
    pale_text: int = 0  # characters in white, on whatever ground
    tags: int = 0
    text: str = ""
    title: str = ""
    base: str = ""
    cut: bool = False  # a bound was reached: there is more than is listed here


def read_html(text: str, limits: Limits = LIMITS, *, lower: str = "") -> HtmlDocument:
    """Read an HTML body; extraction goes on to the last tag, bounded by number of URLs and by bytes.

    `lower` is the whole text in lower case, where the caller has it already.
    """
    cut = len(text) > limits.html
    if cut:
        text, lower = text[: limits.html], ""
    tags = len(_TAG.findall(text))
    if tags > 2_000 and is_deep(text):
        # A tree thousands of levels deep costs the parser quadratic time: read it flat.
        text, lower = _DEPTH_TAGS.sub(_flatten, text), ""
        cut = True
    try:
        parser = LexborHTMLParser(text)
    except (ValueError, RuntimeError, UnicodeError):
        return HtmlDocument(tags=tags, cut=True)
    return _Reader(parser, lower or text.lower(), limits, tags, cut).read()


class _Reader:
    def __init__(self, parser: LexborHTMLParser, lower: str, limits: Limits, tags: int, cut: bool) -> None:
        self._parser = parser
        self._lower = lower
        self._limits = limits
        self._tags = tags
        self._cut = cut
        self._links: list[Link] = []
        self._data: list[str] = []

    def read(self) -> HtmlDocument:
        for node in self._select("a[href], area[href]"):
            self._add_link(node.attributes.get("href"), _visible(node), node.tag or "a")
        frames = [self._note(node, "src") for node in self._select("iframe, frame, embed", "frame", "<embed")]
        frames += [self._note(node, "data") for node in self._select("object", "<object")]
        images = [self._note(node, "src") for node in self._select("img[src]", "<im")]
        forms = tuple(self._read_form(node) for node in self._select("form", "<form")[:200])
        scripts = self._read_scripts()
        body = self._parser.body
        title = self._parser.css_first("title") if "<title" in self._lower else None
        base = self._parser.css_first("base[href]") if "<base" in self._lower else None
        address = (base.attributes.get("href") or "")[: self._limits.url] if base else ""
        hidden, gone, tiny, pale = self._measure_hidden()
        handlers = len(self._select(",".join(f"[{name}]" for name in _HANDLERS), *_HANDLERS))
        return HtmlDocument(
            links=self._links_on(address),
            forms=forms,
            scripts=scripts,
            frames=tuple(frame for frame in frames if frame),
            refreshes=self._read_refreshes(),
            data_uris=tuple(self._data[:1_000]),
            images=tuple(image for image in images if image),
            handlers=handlers,
            hidden=hidden,
            gone_text=gone,
            tiny_text=tiny,
            pale_text=pale,
            tags=self._tags,
            text=self._read_text(body),
            title=(title.text(deep=True)[:_TEXT].strip() if title else ""),
            base=address,
            cut=self._cut,
        )

    def _measure_hidden(self) -> tuple[int, int, int, int]:
        """Return how many elements are hidden, and how many characters are not shown, tiny or white."""
        hidden = gone = tiny = pale = 0
        looks: dict[str, _Look] = {}  # most elements of a page have the style of another
        for node in self._select("[style]", "style"):
            style = (node.attributes.get("style") or "")[:4_096]
            look = looks.get(style) or looks.setdefault(style, _look_of(style))
            hidden += look.hidden
            if look.gone:
                gone += _length(node) if gone < _ENOUGH else 0
            elif look.tiny:
                tiny += _length(node) if tiny < _ENOUGH and not _sizes_within(node) else 0
            elif look.pale:
                pale += len(node.text(deep=False).strip())
        for node in self._select("[hidden]", "hidden"):
            hidden += 1
            gone += _length(node) if gone < _ENOUGH else 0
        for node in self._select("font[color]", "<font"):
            if (node.attributes.get("color") or "").lower() in _WHITES:
                pale += len(node.text(deep=False).strip())
        return hidden, gone, tiny, pale

    def _select(self, selector: str, *signs: str) -> list[LexborNode]:
        """Return what a selector finds; where none of the signs stands in the source, it cannot find anything."""
        if signs and not any(sign in self._lower for sign in signs):
            return []
        found = self._parser.css(selector)
        if len(found) > self._limits.urls:
            self._cut = True
            return found[: self._limits.urls]
        return found

    def _add_link(self, href: str | None, text: str, tag: str) -> None:
        if href is None:
            return
        if href[:5].lower() == "data:":
            self._data.append(href[:256])
        if len(self._links) < self._limits.urls:
            self._links.append(Link(href[: self._limits.url].strip(), text, tag))
        else:
            self._cut = True

    def _links_on(self, base: str) -> tuple[Link, ...]:
        """Return the links as a browser follows them: those without a host of their own lead to that of the base."""
        if not base:
            return tuple(self._links)
        return tuple(Link(_join(base, link.href), link.text, link.tag) for link in self._links)

    def _note(self, node: LexborNode, attribute: str) -> str:
        """Return an address that the message loads; data URIs are noted apart."""
        value = node.attributes.get(attribute) or ""
        if value[:5].lower() == "data:":
            self._data.append(value[:256])
            return ""
        return value[: self._limits.url].strip()

    def _read_form(self, node: LexborNode) -> Form:
        action = (node.attributes.get("action") or "")[: self._limits.url].strip()
        method = (node.attributes.get("method") or "get")[:10].lower()
        return Form(action, method, node.css_first('input[type="password" i]') is not None)

    def _read_scripts(self) -> tuple[str, ...]:
        kept: list[str] = []
        room = self._limits.html_scripts
        for node in self._select("script", "<script")[:1_000]:
            source = node.attributes.get("src")
            script = source[: self._limits.url] if source else node.text(deep=True)
            kept.append(script[:room])
            room -= len(kept[-1])
            if room <= 0:
                self._cut = True
                break
        return tuple(script for script in kept if script)

    def _read_refreshes(self) -> tuple[str, ...]:
        metas = [
            (node.attributes.get("content") or "")[:16_384]
            for node in self._select("meta[http-equiv]", "http-equiv")[:1_000]
            if (node.attributes.get("http-equiv") or "").strip().lower() == "refresh"
        ]
        return tuple(match[1] for content in metas if (match := _REFRESH.search(content)))

    def _read_text(self, body: LexborNode | None) -> str:
        if body is None:
            return ""
        for name in ("script", "style"):
            for node in self._parser.css(name)[:_NODES] if f"<{name}" in self._lower else ():
                node.decompose()
        text = body.text(deep=True, separator=" ")
        return " ".join(text[: self._limits.html_text].split())


def _look_of(style: str) -> _Look:
    style = style.lower()
    not_shown = any(word in style and pattern.search(style) for word, pattern in _NOT_SHOWN)
    return _Look(
        hidden=not_shown or bool(_NO_SIZE.search(style)),
        gone=not_shown or bool(_LEFT_OUT.search(style)),
        tiny=bool(_TINY.search(style)),
        pale="background" not in style and any(word in style for word in _PALE_WORDS) and bool(_PALE.search(style)),
    )


def _join(base: str, href: str) -> str:
    if href.startswith("#"):
        return href
    try:
        return urljoin(base, href)
    except ValueError:
        return href


def _sizes_within(node: LexborNode) -> bool:
    """Tell whether elements inside set their size themselves, as layouts do that close gaps by a size of zero."""
    return len(node.css('[style*="font" i]')) > 1 or node.css_first("font[size]") is not None


def _length(node: LexborNode) -> int:
    return len(" ".join(node.text(deep=True)[: 2 * _ENOUGH].split()))


def _visible(node: LexborNode) -> str:
    return " ".join(node.text(deep=True)[: 4 * _TEXT].split())[:_TEXT]


def is_deep(text: str) -> bool:
    """Tell whether tags nest thousands deep, which costs parsers quadratic time."""
    depth = deepest = 0
    void = {"br", "img", "hr", "meta", "link", "input", "area", "base", "col", "embed", "source", "wbr", "p", "li"}
    for closes, name in _DEPTH_TAGS.findall(text):
        if name.lower() in void:
            continue
        depth = max(depth - 1, 0) if closes else depth + 1
        deepest = max(deepest, depth)
    return deepest > 2_000


def _flatten(match: re.Match[str]) -> str:
    name = match[2].lower()
    return (
        match.group() if name in {"a", "img", "form", "input", "script", "iframe", "meta", "area"} else f"<{match[1]}br"
    )
