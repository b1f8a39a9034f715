"""The safe preview: a hostile message as text with plain formatting, without anything to load or run.

The sanitiser (nh3) brings the page into one canonical form. From that form the document is written anew: tags of
FORMATTING without any attribute, text, and our own notes for what a link leads to and where an image stood. So what
remains does not rest on a list of dangerous things, and the policy of the answer forbids the rest once more.

Security: reads hostile bytes. nh3's time is not linear (a page of 1 MiB can take minutes), so this runs in a process
that is killed at a deadline, never in the process that serves (`pipeline/previews.py`).
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape, unescape
from itertools import islice

import nh3
from msgspec import Struct

from mailwarden.message.charsets import decode_text
from mailwarden.message.html import is_deep, read_html
from mailwarden.message.message import Message, Part
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure
from mailwarden.message.urls import defang

MAX_PAGE = 1_048_576  # shown: a preview for people
MAX_NOTE = 500  # shown: a preview for people
MAX_SCHEMES = 200  # shown: a preview for people

FORMATTING = frozenset(
    (  # noqa: SIM905 - as a sentence of words it is read at a glance
        "b big blockquote br caption center dd div dl dt em h1 h2 h3 h4 h5 h6 hr i li ol p pre s small span strike "
        "strong sub sup table tbody td tfoot th thead tr u ul"
    ).split()
)
_NOTED = {"a": {"href"}, "area": {"href"}, "img": {"alt", "src"}, "form": {"action"}, "input": {"type", "value"}}
_EMPTY = frozenset({"br", "hr"})
# Besides the tags themselves, their content goes: none of it is what a reader sees.
_UNSEEN = frozenset(
    (  # noqa: SIM905
        "script style title template noscript noembed noframes iframe object embed applet svg math audio video canvas "
        "textarea select option datalist xmp plaintext"
    ).split()
)
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{1,30}):")
_TAG = re.compile(r'<(/?)([a-z][a-z0-9]*)((?: [a-z-]+="[^"]*")*)>')
_ATTRIBUTE = re.compile(r' ([a-z-]+)="([^"]*)"')

STYLE = (
    "body{margin:1rem;font:15px/1.5 sans-serif;color:#111;background:#fff;overflow-wrap:anywhere}"
    "pre{white-space:pre-wrap;font:inherit}table{border-spacing:0}td,th{padding:2px 6px;vertical-align:top}"
    "samp{font:12px/1.4 monospace;color:#8a1c1c;background:#fdf0f0;border:1px solid #f0c8c8;border-radius:3px;"
    "padding:0 4px}"
    "kbd{display:inline-block;font:12px/1.4 sans-serif;color:#444;background:#f2f2f2;border:1px dashed #aaa;"
    "border-radius:3px;padding:2px 8px}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}"
    "samp{color:#ffb3b3;background:#3a1f1f;border-color:#6b3535}kbd{color:#ccc;background:#2a2a2a;border-color:#666}}"
)
# Each directive alone would keep the document from reaching out; together one may fail.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; sandbox; "
    "frame-ancestors 'self'; form-action 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-DNS-Prefetch-Control": "off",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Preview(Struct, frozen=True):
    """A document for a sandboxed frame, and the message it shows."""

    document: str
    sha256: str = ""


def preview_message(raw: bytes) -> Preview:
    """Return the body that a mail client would show, made safe."""
    structure = check_structure(raw)
    if structure.tripped:
        return Preview(document_of(notice(structure.tripped[0].sentence)), sha256(raw).hexdigest())
    message = parse_message(raw, report=structure)
    part = chosen_part(message)
    body = notice("The message has no text to show.") if part is None else shown(part)
    return Preview(document_of(body), message.sha256)


def chosen_part(message: Message) -> Part | None:
    """Choose as mail clients do: the first HTML part that is no attachment, otherwise the first text."""
    bodies = [part for part in message.parts if part.disposition != "attachment" and not part.name]
    for kinds in (("text/html", "application/xhtml+xml"), ("text/plain",)):
        for part in bodies:
            if part.media_type in kinds and part.content.strip():
                return part
    return next((part for part in bodies if part.media_type.startswith("text/") and part.content.strip()), None)


def shown(part: Part) -> str:
    """Return the text of a part as safe HTML."""
    text = decode_text(part.content, part.charset)
    cut = notice("Only the beginning is shown.") if len(text) > MAX_PAGE else ""
    text = text[:MAX_PAGE]  # shown: the preview says that it is cut
    if part.media_type == "text/plain" or not part.media_type.endswith("html"):
        return f"{cut}<pre>{_escaped(text)}</pre>"
    if is_deep(text):
        words = _escaped(read_html(text).text)
        return f"{cut}{notice('The page is nested too deep to be laid out: these are its words.')}<pre>{words}</pre>"
    return cut + sanitised(text)


def sanitised(page: str) -> str:
    """Return a page as tags without attributes, text and our own notes; nothing else is written."""
    schemes = {scheme.lower() for scheme in islice(_SCHEME.findall(unescape(page)), MAX_SCHEMES)}  # shown: see above
    canonical = nh3.clean(
        page,
        tags=set(FORMATTING | _NOTED.keys()),
        attributes=_NOTED,
        clean_content_tags=set(_UNSEEN),
        url_schemes=schemes | {"http", "https"},  # a target becomes text: an odd scheme is what a reader must see
        link_rel=None,
        strip_comments=True,
    )
    return "".join(_written_anew(canonical))


def _written_anew(canonical: str) -> Iterator[str]:
    """Walk the canonical form, in which every tag begins with `<` and no text contains one."""
    last = 0
    waiting: list[str] = []  # the targets of the links that are open
    for tag in _TAG.finditer(canonical):
        yield _text(canonical[last : tag.start()])
        last = tag.end()
        closes, name = tag[1], tag[2]
        if name in FORMATTING:
            yield f"<{closes}{name}>" if not (closes and name in _EMPTY) else ""
        elif name == "a" and closes:
            yield _note("samp", waiting.pop()) if waiting else ""
        elif not closes:
            facts = {key: unescape(value) for key, value in _ATTRIBUTE.findall(tag[3])}
            if name == "a":
                waiting.append(defang(facts.get("href", "")))
            else:
                yield _replacement(name, facts)
    yield _text(canonical[last:])
    yield from (_note("samp", target) for target in reversed(waiting))


def _replacement(name: str, facts: dict[str, str]) -> str:
    if name == "img":
        return _note("kbd", f"image: {facts.get('alt', '').strip() or 'no description'}")
    if name == "area":
        return _note("samp", f"map: {defang(facts.get('href', ''))}")
    if name == "form":
        return _note("samp", f"form, sends to {defang(facts.get('action', '')) or 'nowhere'}")
    kind = facts.get("type", "text").lower()
    if kind in ("submit", "button", "image", "reset"):
        return _note("kbd", f"button: {facts.get('value', '').strip() or kind}")
    return "" if kind == "hidden" else _note("kbd", f"field: {kind}")


def _note(tag: str, text: str) -> str:
    text = _escaped(text.strip()[:MAX_NOTE])  # shown: a note of ours
    return f" <{tag}>{text}</{tag}> " if text else ""


def _text(piece: str) -> str:
    """Return a piece between two tags; it is escaped already, and a stray character is escaped here."""
    return piece.replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    return escape("".join(character for character in text if character.isprintable() or character in "\n\t"))


def notice(sentence: str) -> str:
    return f"<p>{_note('kbd', sentence)}</p>"


def document_of(body: str) -> str:
    """Return a whole document around a body that is safe."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Preview</title>'
        f"<style>{STYLE}</style></head><body>{body}</body></html>"
    )
