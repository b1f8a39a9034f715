"""Finds in a parsed message what lists can meet: senders, links, files and what is in them, relays.

Security: works on hostile content inside a killable worker; every sighting is bounded by number and length.
"""

import hashlib
from collections.abc import Iterable, Iterator

from mailwarden.analysis.bodies import is_body
from mailwarden.analysis.file_types import is_office_name
from mailwarden.analysis.unpacking import SeenFile
from mailwarden.analysis.view import View
from mailwarden.message.addresses import read_addresses
from mailwarden.message.charsets import decode_text
from mailwarden.message.html import read_html
from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Message, Part
from mailwarden.message.received import read_received
from mailwarden.message.urls import find_bare_links, find_urls, host_of
from mailwarden.model.sightings import InnerFile, Sight, SightedFile, Sightings

MAX_URLS = 1_000
MAX_BARE_LINKS = 1_000  # beside those: a long log is full of names that end like hosts
MAX_SENDERS = 100
MAX_SUBJECTS = 20
MAX_SUBJECT = 998  # as much of one as is remembered
MAX_RELAYS = 30
MAX_NAME = 1_000

_PAGE_ENDINGS = (".html", ".htm", ".xhtml", ".shtml", ".mht", ".svg")
_PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml"})


def find_sightings(view: View, wanted: Iterable[Sight]) -> Sightings:
    """Look for what is wanted and for nothing else."""
    kinds = frozenset(wanted)
    message = view.message
    urls, cut = _links_of(view) if Sight.URLS in kinds else ((), False)
    return Sightings(
        senders=_senders_of(message) if Sight.SENDERS in kinds else (),
        urls=urls,
        urls_cut=cut,
        files=tuple(_files_of(view, kinds)) if Sight.FILES in kinds else (),
        relays=_relays_of(message) if Sight.RELAYS in kinds else (),
        subjects=_subjects_of(message) if Sight.SUBJECTS in kinds else (),
    )


def _senders_of(message: Message) -> tuple[str, ...]:
    """Return every address of every From: which of them a reader is shown cannot be told."""
    found = (each.address for value in message.all_headers("from") for each in read_addresses(value))
    return tuple(dict.fromkeys(address for address in found if address))[:MAX_SENDERS]


def _subjects_of(message: Message) -> tuple[str, ...]:
    """Return the text of every Subject: which of them a reader is shown cannot be told."""
    return tuple(dict.fromkeys(value[:MAX_SUBJECT] for value in message.all_headers("subject")))[:MAX_SUBJECTS]


def _links_of(view: View) -> tuple[tuple[str, ...], bool]:
    """Return the links of pages, texts and documents, and whether there are more than are returned.

    In the body of a message a name becomes a link without a scheme. Those stand behind, and never make it too many.
    """
    written: list[str] = []
    bare: list[str] = []
    for part in view.message.parts:
        shown = ""
        if part.media_type in _PAGE_TYPES or part.name.lower().endswith(_PAGE_ENDINGS):
            page = read_html(decode_text(part.content, part.charset))
            written += (link.href for link in page.links)
            written += (form.action for form in page.forms)
            written += (*page.frames, *page.refreshes, *page.images, page.base)
            shown = page.text
        elif part.media_type.startswith("text/"):
            shown = decode_text(part.content[: LIMITS.html], part.charset)
        written += find_urls(shown)
        bare += find_bare_links(shown) if is_body(part) else ()
    written += (url for url, _ in view.document_links)
    links, names = _hosts_first(written), _hosts_first(bare)
    return (*links[:MAX_URLS], *names[:MAX_BARE_LINKS]), len(links) > MAX_URLS


def _hosts_first(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the first link to each host, then the others: many harmless links hide no host."""
    first: dict[str, str] = {}
    others: dict[str, None] = {}
    for url in urls:
        host = host_of(url)
        if host and first.setdefault(host, url) != url:
            others[url] = None
    return (*first.values(), *others)


def _files_of(view: View, kinds: frozenset[Sight]) -> Iterator[SightedFile]:
    """Yield every part with the files inside of it, which the analyzers see as well."""
    digests = Sight.DIGESTS in kinds
    inside: dict[int, list[SeenFile]] = {}
    for file in view.opened_files if Sight.INSIDE in kinds else ():
        if file.inside:
            inside.setdefault(id(file.part), []).append(file)
    for part in view.message.parts:
        yield SightedFile(
            place=part.place,
            name=part.name[-MAX_NAME:],  # the end of a name is what the receiver's system obeys
            media_type=part.media_type[:200],
            sha256=part.sha256,
            sha1=_sha1(part.content) if digests else "",
            md5=_md5(part.content) if digests else "",
            inside=tuple(_inner_file(part, file, digests=digests) for file in inside.get(id(part), ())),
            is_body=is_body(part),
        )


def _inner_file(part: Part, file: SeenFile, *, digests: bool) -> InnerFile:
    # A document is opened by its own program, so the names inside of it mean nothing.
    name = "" if is_office_name(part.name) or file.is_body else file.name[-MAX_NAME:]
    if not file.is_read:
        return InnerFile(name)
    sha256 = hashlib.sha256(file.content).hexdigest()
    return InnerFile(name, sha256, _sha1(file.content) if digests else "", _md5(file.content) if digests else "")


def _relays_of(message: Message) -> tuple[str, ...]:
    """Return the address that each hop took the message from; a line in no known form ends what can be followed."""
    relays: list[str] = []
    for value in message.all_headers("received")[:MAX_RELAYS]:
        hop = read_received(value)
        if hop is None:
            break
        relays.append(hop.peer)
    return tuple(relays)


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
