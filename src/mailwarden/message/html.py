"""The contents of an HTML body: links with their visible text, forms, scripts, frames, data URIs, hidden text.

Security: parses hostile HTML with lexbor inside a killable worker; a limit that stops the reader is recorded in the
message's coverage, and it never raises.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import re2
from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mailwarden.message.charsets import readings
from mailwarden.message.coverage import Coverage
from mailwarden.message.html_links import (
    CSS_HINTS,
    LISTED,
    LOADED,
    Link,
    addresses_of,
    carried_page,
    clean_address,
    css_addresses,
    join_address,
    plain_style,
    refresh_target,
)
from mailwarden.message.limits import LIMITS, SHOWN
from mailwarden.message.literal_set import LiteralSet
from mailwarden.message.urls import addresses_inside, find_urls, host_of
from mailwarden.message.white_space import squeeze
from mailwarden.model.place import WHOLE_MESSAGE, Place

# Styles that hide an element, in lower case, each with a word that must occur in the source.
_ZERO = r"\s{0,9}:\s{0,9}0(?![.\d]*[1-9])"
_NOT_SHOWN = (
    ("none", re.compile(r"display\s{0,9}:\s{0,9}none")),
    ("hidden", re.compile(r"visibility\s{0,9}:\s{0,9}hidden")),
    ("opacity", re.compile(rf"opacity{_ZERO}")),
    ("text-indent", re.compile(r"text-indent\s{0,9}:\s{0,9}-\d{3}")),
    ("max-height", re.compile(rf"max-height{_ZERO}")),
)
# Styles that hide as well, but are common in layouts, so they are no evidence.
_CLIPPED = re.compile(rf"(?<![-\w])(?:height|width|line-height|max-width){_ZERO}")
_ASIDE = re.compile(
    r"(?:left|top|right)\s{0,9}:\s{0,9}-\d{3}|clip\s{0,9}:\s{0,9}rect\(\s{0,9}[01]|clip-path\s{0,9}:|scale\(0\)"
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
# Elements whose content HTML5 does not show, and Outlook and other clients do.
_OPENED = re.compile(r"<(/?)(?:template|noembed|noframes)(?=[\s/>])", re.IGNORECASE)
_OPENED_HINTS = ("<template", "<noembed", "<noframes")
_CONDITIONAL = re.compile(r"<!--\s*\[if[^\]<>]*\]>(.*?)(?:--!?>|\Z)", re.IGNORECASE | re.DOTALL)
# Tags and comments that part no words on the screen, so that `pass<b></b>word` is read as one word. By RE2, as an
# attribute may hold anything.
_INLINE_TAG = (
    r"</?(?:a|abbr|acronym|b|bdi|bdo|big|cite|code|dfn|del|em|font|i|ins|kbd|label|mark|nobr|o:p|q|s|samp|small|span|"
    r"strike|strong|sub|sup|tt|u|var|wbr)(?:[\s/](?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?>|<!--(?:[^-]|-[^-]|--[^>])*-->"
)
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_INLINE = re2.compile(f"(?i){_INLINE_TAG}".encode(), _BYTES)
_TORN = re2.compile(rf"(?i)[\w./:-](?:{_INLINE_TAG})+[\w./:-]".encode(), _BYTES)
_KEPT_FLAT = frozenset({"a", "img", "form", "input", "script", "iframe", "meta", "area", "button", "frame", "base"})
_MAY_HIDE = re.compile(r"none|hidden|:\s{0,9}[01](?![\d.])|-\d{3}|\\", re.IGNORECASE)
_SIMPLE = re.compile(r"(?:[a-z][a-z0-9]{0,20})?[.#][a-z_][\w-]{0,80}", re.IGNORECASE)
# It begins with letters, for which a search is faster than for one of several signs.
_HANDLER = re.compile(r"on(?<=[\s/\"']on)([a-z]{3,30})\s{0,99}=")
_HANDLERS = ("onload", "onclick", "onerror", "onsubmit", "onmouseover", "onfocus")
_RARE = tuple(name for name in (*LOADED, *LISTED) if name not in ("src", "data"))
# Words without which a page has nothing of a kind: they are searched together, before the tree.
_WORDS = LiteralSet(
    (
        *_RARE, *_HANDLERS, *_OPENED_HINTS, *CSS_HINTS, "\\", "<base", "[if", "<title", "href", "action", "frame",
        "<embed", "<object", "<im", "src", "<svg", "data=", "<param", "srcdoc", "<form", "<script", "http-equiv",
        "style", "<style", "hidden", "<font", "type", "on",
    )
)  # fmt: skip
_MUCH_HIDDEN = 1_000  # characters
_OFTEN_HIDDEN = 20  # elements
_SHORT_STYLE = 300  # characters of one that is kept for the next message


class _Look(NamedTuple):
    """The effects of an element's style."""

    hidden: bool
    gone: bool
    tiny: bool
    pale: bool
    clipped: bool


class Form(Struct, frozen=True):
    action: str
    method: str
    has_password: bool


class HtmlDocument(Struct, frozen=True):
    links: tuple[Link, ...] = ()  # where a click leads
    loads: tuple[Link, ...] = ()  # addresses loaded or opened with the page
    forms: tuple[Form, ...] = ()
    asks_password: bool = False  # in a form or outside of one
    scripts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    refreshes: tuple[str, ...] = ()
    data_uris: tuple[str, ...] = ()  # the first characters of each, enough for the type
    carried: tuple[str, ...] = ()  # pages inside of data URIs and srcdoc
    images: tuple[str, ...] = ()
    handlers: int = 0  # attributes such as onclick
    hidden: int = 0  # elements whose style hides them
    gone_text: int = 0  # characters in elements that are not shown
    tiny_text: int = 0  # characters too small to be seen
    pale_text: int = 0  # white characters, on any background
    tags: int = 0
    text: str = ""
    other_texts: tuple[str, ...] = ()  # alternatives that some clients show: without hidden text, or for Outlook only
    joined_text: str = ""  # the text without the gaps that tags inside of words leave in `text`
    title: str = ""
    base: str = ""

    @property
    def unseen(self) -> int:
        """Return how many characters are not shown, too small or white."""
        return self.gone_text + self.tiny_text + self.pale_text


def read_html(
    text: str,
    coverage: Coverage | None = None,
    place: Place = WHOLE_MESSAGE,
    *,
    lower: str = "",
    beside: bool = True,
    base: str = "",
) -> HtmlDocument:
    """Parse an HTML body to its last tag; content beyond a limit is recorded in `coverage` at `place`.

    `lower` is the whole text in lower case, where the caller has it already; `beside` reads as well what only some
    clients see in the same source; `base` is what relative addresses belong to where the page says nothing itself.
    """
    coverage = coverage or Coverage()
    whole = len(text)
    text = coverage.cut(text, "html", place)
    lower = lower if lower and len(text) == whole else text.lower()
    tags = len(_TAG.findall(text))
    if tags > coverage.limits.html_depth and is_deep(text, coverage.limits.html_depth):
        # A tree thousands of levels deep costs the parser quadratic time: read it flat.
        text = _DEPTH_TAGS.sub(_flatten, text)
        coverage.beyond("html_depth", place)
    encoded = text.encode("utf-8", "ignore")
    try:
        parser = LexborHTMLParser(encoded)
    except (ValueError, RuntimeError, UnicodeError):
        coverage.damaged(place, "the HTML parser refuses the page")
        return HtmlDocument(tags=tags)
    return _Reader(parser, text, coverage, place, lower=lower, encoded=encoded, base=base).read(tags, beside=beside)


class _Reader:
    def __init__(
        self,
        parser: LexborHTMLParser,
        source: str,
        coverage: Coverage,
        place: Place,
        *,
        lower: str,
        encoded: bytes,
        base: str,
    ) -> None:
        self._parser = parser
        self._source = source
        self._lower = lower
        self._encoded = encoded
        self._words = _WORDS.find(encoded)
        self._coverage = coverage
        self._place = place
        self._links: list[Link] = []
        self._loads: dict[str, Link] = {}
        self._data: list[str] = []
        self._carried: list[str] = []
        self._room = coverage.limits.html  # characters of the texts of all links together
        self._base = base if host_of(base) else ""

    def read(self, tags: int, *, beside: bool) -> HtmlDocument:
        base = self._parser.css_first("base[href]") if "<base" in self._words else None
        self._base = clean_address(base.attributes.get("href") or "") if base else self._base
        frames, images = self._read_addresses()
        forms = tuple(self._read_form(node) for node in self._select("form", "<form"))
        scripts = self._read_scripts()
        refreshes = self._read_refreshes()
        others = [self._read_conditional()] if beside and "[if" in self._words else []
        if beside and not self._words.isdisjoint(_OPENED_HINTS):
            others.append(self._read_beside(_OPENED.sub(r"<\1div", self._source)))
        self._read_styles()
        title = self._parser.css_first("title") if "<title" in self._words else None
        hidden, gone, tiny, pale, unseen = self._measure_hidden()
        handlers = self._read_handlers()
        text, seen = self._read_texts(self._parser.body, unseen)
        joined = self._read_joined() if beside and _TORN.search(self._encoded) else ""
        return HtmlDocument(
            links=tuple(self._links),
            loads=tuple(self._loads.values()),
            forms=forms,
            asks_password=bool(self._select('[type="password" i]', "type")),
            scripts=scripts,
            frames=frames,
            refreshes=refreshes,
            data_uris=tuple(self._data),
            carried=tuple(self._carried),
            images=images,
            handlers=handlers,
            hidden=hidden,
            gone_text=gone,
            tiny_text=tiny,
            pale_text=pale,
            tags=tags,
            text=text,
            other_texts=tuple(other for other in (seen, *others, joined) if other and other != text),
            joined_text=joined if joined != text else "",
            title=title.text(deep=True).strip()[: SHOWN.subject] if title else "",
            base=self._base,
        )

    def _read_addresses(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Collect every address in attributes; return those of frames and those of images separately."""
        anchors = self._select("a[href], area[href]", "href")
        for node in anchors:
            self._add_link(_href(node), self._visible(node), node.tag or "a")
        if "href" in self._words and self._lower.count("href") > len(anchors):
            for node in self._select("[href], [xlink\\:href]"):
                if node.tag not in ("a", "area") or "href" not in node.attributes:
                    self._add_addresses(node)
        for node in self._select("[action], [formaction]", "action"):
            self._add_addresses(node)
        frames = [self._note(node, "src") for node in self._select("iframe, frame, embed", "frame", "<embed")]
        frames += [self._note(node, "data") for node in self._select("object", "<object")]
        images = [self._note(node, "src") for node in self._select("img[src]", "<im")]
        for node in self._select("[src]", "src"):
            if node.tag != "img":
                self._add_addresses(node)
        for name in _RARE:
            for node in self._select(f"[{name}]", name):
                self._add_addresses(node)
        for node in self._select("[data]:not(object), animate, set, param", "<svg", "data=", "<param"):
            self._add_addresses(node)
        for node in self._select("iframe[srcdoc]", "srcdoc"):
            self._carried.append(node.attributes.get("srcdoc") or "")
        return tuple(filter(None, frames)), tuple(filter(None, images))

    def _add_addresses(self, node: LexborNode) -> None:
        tag = (node.tag or "").lower()
        for value, leads in addresses_of(tag, node.attributes):
            if leads:
                self._add_link(value, self._visible(node), tag)
            else:
                self._add_load(value, tag)

    def _add_link(self, href: str | None, text: str, tag: str) -> None:
        if href is None:
            return
        href = self._whole(href)
        if href[:5].lower() == "data:":
            self._note_data(href)
        else:
            for url in addresses_inside(href):
                self._add_link(url, text, tag)
        if len(self._links) < self._coverage.limits.urls:
            self._links.append(Link(href, text, tag))
        else:
            self._coverage.beyond("urls", self._place)

    def _add_load(self, value: str, tag: str) -> None:
        href = self._whole(value)
        if href[:5].lower() == "data:":
            self._note_data(href)
        elif href not in self._loads and host_of(href):
            if len(self._loads) < self._coverage.limits.urls:
                self._loads[href] = Link(href, "", tag)
            else:
                self._coverage.beyond("urls", self._place)

    def _whole(self, value: str) -> str:
        """Return an address as a browser follows it."""
        if value[:5].lower() == "data:":
            return value
        return join_address(self._base, self._coverage.cut(clean_address(value), "url", self._place))

    def _note_data(self, uri: str) -> None:
        self._data.append(uri[:256])  # not inspection: enough for the type; the content is read below
        if carried := carried_page(uri):
            content, charset = carried
            self._carried += readings(content, (charset,), page=True)

    def _note(self, node: LexborNode, attribute: str) -> str:
        """Return an address that the page loads; data URIs are recorded separately."""
        value = node.attributes.get(attribute) or ""
        if value.lstrip()[:5].lower() == "data:":
            self._note_data(value.lstrip())
            return ""
        self._add_load(value, node.tag or "")
        return clean_address(value)

    def _select(self, selector: str, *words: str) -> list[LexborNode]:
        """Return the nodes of a selector; skip the search if none of `words` occurs in the source."""
        if words and self._words.isdisjoint(words):
            return []
        found = self._parser.css(selector)
        return found if len(found) <= self._coverage.limits.html_nodes else list(self._first(found))

    def _first(self, nodes: list[LexborNode]) -> Iterator[LexborNode]:
        return self._coverage.first(nodes, "html_nodes", self._place)

    def _visible(self, node: LexborNode) -> str:
        """Return the text of an element; nested elements are read again, so all share one budget."""
        if self._room <= 0:
            self._coverage.beyond("html", self._place, "the links of the page have more text than is read")
            return ""
        text = node.text(deep=True)
        self._room -= len(text)
        return self._coverage.cut(" ".join(text.split()), "link_text", self._place)

    def _read_form(self, node: LexborNode) -> Form:
        action = self._whole(node.attributes.get("action") or "")
        method = (node.attributes.get("method") or "get").lower()
        return Form(action, method, node.css_first('input[type="password" i]') is not None)

    def _read_scripts(self) -> tuple[str, ...]:
        kept: list[str] = []
        room = self._coverage.limits.html_scripts
        for node in self._select("script", "<script"):
            source = node.attributes.get("src")
            script = source or node.text(deep=True)
            if len(script) > room:
                self._coverage.beyond("html_scripts", self._place)
                kept.append(script[:room])
                break
            kept.append(script)
            room -= len(script)
        for script in kept:
            for url in find_urls(script) if "://" in script else ():
                self._add_load(url, "script")
        return tuple(script for script in kept if script)

    def _read_handlers(self) -> int:
        """Return how many elements run code, and record their targets."""
        nodes = self._select(",".join(f"[{name}]" for name in _HANDLERS), *_HANDLERS)
        written = (f"on{rest}" for rest in _HANDLER.findall(self._lower)) if "on" in self._words else ()
        rare = dict.fromkeys(name for name in written if name not in _HANDLERS)
        names = self._coverage.first(rare, "html_nodes", self._place)
        for node in (*nodes, *(node for name in names for node in self._select(f"[{name}]"))):
            for name, value in node.attributes.items():
                for url in find_urls(value) if value and name.lower().startswith("on") and "://" in value else ():
                    self._add_link(url, "", node.tag or "")
        return len(nodes)

    def _read_refreshes(self) -> tuple[str, ...]:
        found: list[str] = []
        for node in self._select("meta[http-equiv]", "http-equiv"):
            if (node.attributes.get("http-equiv") or "").strip().lower() == "refresh":
                target = refresh_target(node.attributes.get("content") or "")
                if target:
                    found.append(self._whole(target))
                    self._add_link(target, "", "meta")
        return tuple(found)

    def _read_styles(self) -> None:
        for node in self._select("style", "<style"):
            for address in css_addresses(node.text(deep=True)):
                self._add_load(address, "style")
        if "\\" in self._words or not self._words.isdisjoint(CSS_HINTS):
            for node in self._select('[style*="("], [style*="\\\\"]', "style"):
                for address in css_addresses(node.attributes.get("style") or ""):
                    self._add_load(address, "style")

    def _read_conditional(self) -> str:
        """Parse Outlook's conditional comments, and return their text."""
        pieces = [match[1] for match in _CONDITIONAL.finditer(self._source)]
        return self._read_beside("\n".join(pieces)) if any("<" in piece for piece in pieces) else ""

    def _read_beside(self, source: str) -> str:
        """Add the links of an alternative reading of the source, and return its text."""
        page = read_html(source, self._coverage, self._place, beside=False)
        known = {link.href for link in self._links}
        for link in page.links:
            if self._whole(link.href) not in known:
                self._add_link(link.href, link.text, link.tag)
        for load in page.loads:
            self._add_load(load.href, load.tag)
        self._carried += page.carried
        return page.text

    def _read_joined(self) -> str:
        """Return the text as shown if tags split words."""
        parser = LexborHTMLParser(_INLINE.sub(b"", self._encoded))
        for node in parser.css("script, style"):
            node.decompose()
        return self._text_of(parser.body) if parser.body else ""

    def _measure_hidden(self) -> tuple[int, int, int, int, list[LexborNode]]:
        """Return how many elements are hidden, how many characters are not shown, tiny or white, and the elements."""
        hidden = gone = tiny = pale = 0
        most = self._coverage.limits.html_text
        unseen: list[LexborNode] = []
        looks: dict[str, _Look] = {}  # most elements of a page have the style of another
        for node in self._select("[style]", "style"):
            style = node.attributes.get("style") or ""
            look = looks.get(style) or looks.setdefault(style, _known_look(style))
            hidden += look.hidden
            if look.gone:
                gone += _length(node) if gone < most else 0
                unseen.append(node)
            elif look.tiny and not _sizes_within(node):
                tiny += _length(node) if tiny < most else 0
                unseen.append(node)
            elif look.pale:
                pale += len(node.text(deep=False).strip())
            if look.clipped and not look.gone:
                unseen.append(node)
        for node in self._select("[hidden]", "hidden"):
            hidden += 1
            gone += _length(node) if gone < most else 0
            unseen.append(node)
        for node in self._select("font[color]", "<font"):
            if (node.attributes.get("color") or "").lower() in _WHITES:
                pale += len(node.text(deep=False).strip())
        return hidden, gone, tiny, pale, [*unseen, *self._hidden_by_class()]

    def _hidden_by_class(self) -> Iterator[LexborNode]:
        """Yield the elements that simple rules of the page's own style hide."""
        for node in self._select("style", "<style"):
            for rule in _without_media(node.text(deep=True)).split("}"):
                names, _, style = rule.rpartition("{")
                look = _look_of(style) if _MAY_HIDE.search(style) else None
                if look and (look.gone or look.tiny or look.clipped):
                    for selector in names.split(","):
                        if _SIMPLE.fullmatch(selector.strip()):
                            yield from self._select(selector.strip())

    def _read_texts(self, body: LexborNode | None, unseen: list[LexborNode]) -> tuple[str, str]:
        """Return the text of the body, and the text without hidden parts if much is hidden."""
        if body is None:
            return "", ""
        for name in ("script", "style"):
            for node in self._parser.css(name) if f"<{name}" in self._words else ():
                node.decompose()
        text = self._text_of(body)
        if not unseen:
            return text, ""
        self._remove(unseen)
        seen = self._text_of(body)
        much = len(text) - len(seen) >= _MUCH_HIDDEN or (len(unseen) >= _OFTEN_HIDDEN and seen != text)
        return text, seen if much else ""

    def _remove(self, nodes: list[LexborNode]) -> None:
        """Remove elements from the tree, nested ones once; scripts and styles are already removed."""
        chosen = {node.mem_id: node for node in nodes if node.tag not in ("script", "style", "body", "html", "head")}
        outermost = [node for node in chosen.values() if not _is_inside(node, chosen)]
        for node in outermost:
            node.decompose()

    def _text_of(self, body: LexborNode) -> str:
        text = squeeze(body.text(deep=True, separator=" "), self._coverage.limits.html_text)
        return self._coverage.cut(text, "html_text", self._place)


def _is_inside(node: LexborNode, others: dict[int, LexborNode]) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.mem_id in others:
            return True
        parent = parent.parent
    return False


def _known_look(style: str) -> _Look:
    return _cached_look(style) if len(style) <= _SHORT_STYLE else _look_of(style)


@lru_cache(maxsize=2_048)
def _cached_look(style: str) -> _Look:
    """Return the effects of a short style; messages of one sender have the same ones again and again."""
    return _look_of(style)


def _look_of(style: str) -> _Look:
    style = style.lower()
    if "\\" in style or "/*" in style:
        style = plain_style(style)
    not_shown = any(word in style and pattern.search(style) for word, pattern in _NOT_SHOWN)
    return _Look(
        hidden=not_shown or bool(_NO_SIZE.search(style)),
        gone=not_shown or bool(_LEFT_OUT.search(style)),
        tiny=bool(_TINY.search(style)),
        pale="background" not in style and any(word in style for word in _PALE_WORDS) and bool(_PALE.search(style)),
        clipped=bool(("overflow" in style and _CLIPPED.search(style)) or _ASIDE.search(style)),
    )


def _without_media(style: str) -> str:
    """Return a style without media-specific blocks."""
    pieces = style.split("@media")
    return pieces[0] + "".join(_after_block(piece) for piece in pieces[1:])


def _after_block(piece: str) -> str:
    depth = 0
    for match in re.finditer(r"[{}]", piece):
        depth += 1 if match.group() == "{" else -1
        if depth <= 0:
            return piece[match.end() :]
    return ""


def _href(node: LexborNode) -> str | None:
    attributes = node.attributes
    if "href" in attributes:
        return attributes["href"]
    return next((value for name, value in attributes.items() if name.endswith(":href")), None)


def _sizes_within(node: LexborNode) -> bool:
    """Return whether inner elements set their own size, as layouts do that close gaps with a size of zero."""
    return len(node.css('[style*="font" i]')) > 1 or node.css_first("font[size]") is not None


def _length(node: LexborNode) -> int:
    return len(" ".join(node.text(deep=True).split()))


def is_deep(text: str, most: int = LIMITS.html_depth) -> bool:
    """Return whether tags nest thousands deep, which costs parsers quadratic time."""
    depth = deepest = 0
    void = {"br", "img", "hr", "meta", "link", "input", "area", "base", "col", "embed", "source", "wbr", "p", "li"}
    for closes, name in _DEPTH_TAGS.findall(text):
        if name.lower() in void:
            continue
        depth = max(depth - 1, 0) if closes else depth + 1
        deepest = max(deepest, depth)
    return deepest > most


def _flatten(match: re.Match[str]) -> str:
    name = match[2].lower()
    return match.group() if name in _KEPT_FLAT else f"<{match[1]}br"
