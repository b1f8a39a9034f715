"""Finds the observables of a message (senders, links, files, relays) for lists, and its summary for history.

Security: works on hostile content inside a killable worker; the readers of the view record the limits that stop them.
Values that are shown are cut to printable characters.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mailwarden.analysis.view import View
from mailwarden.files.file_types import DISK_IMAGE, HEAD, PROGRAM, SHORTCUT, WEB_PAGE, is_body, kind_by_content
from mailwarden.files.unpacking import SeenFile
from mailwarden.message.addresses import first_address, read_addresses, read_identity
from mailwarden.message.file_names import ending_of
from mailwarden.message.limits import LIMITS, SHOWN, Limits
from mailwarden.message.message import Message
from mailwarden.message.received import find_hops, read_received
from mailwarden.message.urls import host_of
from mailwarden.model.observables import InnerFile, Observable, Observables, ObservedFile
from mailwarden.model.record import LinkSummary, MessageSummary, PartSummary

MAX_RELAYS = 30  # not inspection: the walk over trusted relays ends sooner
_ENDINGS = {
    PROGRAM: ".exe", SHORTCUT: ".lnk", DISK_IMAGE: ".iso", WEB_PAGE: ".html", "pdf": ".pdf", "zip": ".zip",
    "rar": ".rar", "7z": ".7z", "gzip": ".gz", "cab": ".cab", "rtf": ".rtf",
}  # fmt: skip
_TYPES = {
    "text/html": ".html", "application/xhtml+xml": ".xhtml", "image/svg+xml": ".svg", "text/javascript": ".js",
    "application/javascript": ".js", "application/x-javascript": ".js", "application/hta": ".hta",
    "application/x-msdownload": ".exe", "application/x-msdos-program": ".exe", "application/x-dosexec": ".exe",
    "application/vnd.microsoft.portable-executable": ".exe", "application/x-msi": ".msi",
    "application/x-ms-installer": ".msi", "application/java-archive": ".jar", "application/x-bat": ".bat",
    "application/x-vbs": ".vbs", "text/vbscript": ".vbs", "application/x-powershell": ".ps1",
    "application/x-ms-shortcut": ".lnk", "application/x-iso9660-image": ".iso", "application/zip": ".zip",
    "application/x-zip-compressed": ".zip", "application/vnd.rar": ".rar", "application/x-7z-compressed": ".7z",
    "application/pdf": ".pdf", "application/rtf": ".rtf", "application/msword": ".doc",
    "application/vnd.ms-excel": ".xls", "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.ms-word.document.macroenabled.12": ".docm",
    "application/vnd.ms-excel.sheet.macroenabled.12": ".xlsm", "application/vnd.android.package-archive": ".apk",
    "message/rfc822": ".eml", "application/vnd.ms-outlook": ".msg", "text/calendar": ".ics", "text/vcard": ".vcf",
}  # fmt: skip
_SHOWN_ADDRESSES = 100
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,998}>")  # RFC 5322, section 3.6.4


def find_observables(view: View, wanted: Iterable[Observable]) -> Observables:
    """Return the requested observables only."""
    kinds = frozenset(wanted)
    message = view.message
    return Observables(
        senders=_senders_of(message) if Observable.SENDERS in kinds else (),
        urls=_links_of(view) if Observable.URLS in kinds else (),
        files=tuple(_files_of(view, kinds)) if Observable.FILES in kinds else (),
        relays=_relays_of(message) if Observable.RELAYS in kinds else (),
        subjects=_subjects_of(message) if Observable.SUBJECTS in kinds else (),
    )


def _senders_of(message: Message) -> tuple[str, ...]:
    """Return every address of every From, because clients differ in the one they show."""
    found = (each.address for value in message.all_headers("from") for each in read_addresses(value))
    return tuple(dict.fromkeys(address for address in found if address))


def _subjects_of(message: Message) -> tuple[str, ...]:
    """Return the text of every Subject, because clients differ in the one they show."""
    return tuple(dict.fromkeys(message.all_headers("subject")))


def _links_of(view: View) -> tuple[str, ...]:
    """Return every link that a client makes clickable, loads, or shows as the text of another link."""
    found = (
        *(link.url for link in view.links),
        *(load.url for load in view.loads),
        *view.labels,
        *(url for url, _ in view.document_links),
    )
    return tuple(dict.fromkeys(url for url in found if host_of(url)))


def _files_of(view: View, kinds: frozenset[Observable]) -> Iterator[ObservedFile]:
    """Yield every part with the files inside it, which the analyzers see as well."""
    digests = Observable.DIGESTS in kinds
    inside: dict[int, list[SeenFile]] = {}
    for file in view.opened_files if Observable.INSIDE in kinds else ():
        if file.inside:
            inside.setdefault(id(file.part), []).append(file)
    for part in view.message.parts:
        yield ObservedFile(
            place=part.place,
            name=listed_name(part.name, part.media_type, part.content),
            media_type=part.media_type,
            sha256=part.sha256,
            sha1=_sha1(part.content) if digests else "",
            md5=_md5(part.content) if digests else "",
            inside=tuple(_inner_file(file, digests=digests) for file in inside.get(id(part), ())),
            is_body=is_body(part),
        )


def _inner_file(file: SeenFile, *, digests: bool) -> InnerFile:
    # A document is opened by its own program, so the names inside it mean nothing.
    name = "" if file.in_document or file.is_body else listed_name(file.name, file.media_type, file.content)
    if not file.is_read:
        return InnerFile(name)
    sha256 = hashlib.sha256(file.content).hexdigest()
    return InnerFile(name, sha256, _sha1(file.content) if digests else "", _md5(file.content) if digests else "")


def listed_name(name: str, media_type: str, content: bytes) -> str:
    """Return a name with an ending: clients give one to a file without it, by its content or by its type."""
    if ending_of(name):
        return name
    ending = _ENDINGS.get(kind_by_content(content[:HEAD]), "") or _TYPES.get(media_type, "")
    return f"{name or 'unnamed'}{ending}" if ending else name


def _relays_of(message: Message) -> tuple[str, ...]:
    """Return the address that each hop took the message from; a line in an unknown form ends the list."""
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


def with_links(summary: MessageSummary, view: View) -> MessageSummary:
    """Return the summary with the links of the message (the first to each host, then some of the others), and with the
    names that lists compare.
    """
    first: dict[str, LinkSummary] = {}
    others: list[LinkSummary] = []
    known: set[tuple[str, str]] = set()
    for seen in view.links:
        target = _printable(seen.url)[: SHOWN.link]
        text = _printable(seen.text)[: SHOWN.fact] if seen.text else target
        if target[:1] in ("", "#") or (text, target) in known or seen.bare:
            continue
        known |= {(text, target), (target, target)}  # the plain text of a message repeats the links of its page
        link = LinkSummary(text, target, seen.host)
        if first.setdefault(link.host, link) is not link and len(others) < SHOWN.links:
            others.append(link)
    links = (*first.values(), *others)[: SHOWN.links]
    hosts = {link.host for link in (*view.links, *view.loads)}
    hosts |= {host_of(url) for url in (*view.labels, *(url for url, _ in view.document_links))}
    shown = sorted(host for host in hosts if "." in host and host.isprintable())
    return replace(summary, links=links, url_hosts=tuple(shown[: SHOWN.hosts]), parts=_parts(summary, view))


def _parts(summary: MessageSummary, view: View) -> tuple[PartSummary, ...]:
    """Return the parts, each with the name that lists match if it differs from its own."""
    names = (listed_name(part.name, part.media_type, part.content) for part in view.message.parts)
    return tuple(
        replace(part, listed_name=name[: SHOWN.name]) if name != part.name else part
        for part, name in zip(summary.parts, names, strict=False)
    )


def _printable(text: str) -> str:
    """Drop control characters and bidirectional formatting characters."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def summarize(message: Message, limits: Limits = LIMITS) -> MessageSummary:
    sender = read_identity(message.header("from"))
    return MessageSummary(
        size=message.size,
        sha256=message.sha256,
        from_address=sender.address,
        from_name=sender.name,
        reply_to=first_address(message.header("reply-to"), limits).address,
        to=_recipients(message, limits),
        subject=message.header("subject")[: SHOWN.subject],
        message_id=message.header("message-id")[: SHOWN.subject],
        date=message.header("date")[: SHOWN.fact],
        parts=tuple(
            PartSummary(
                part.path, part.media_type[: SHOWN.fact], part.name[: SHOWN.name], len(part.content), part.sha256
            )
            for part in message.parts[: limits.parts]
        ),
        hops=find_hops(message),
        references=_references(message),
    )


def _references(message: Message) -> tuple[str, ...]:
    """Return the messages of In-Reply-To and References: the first one, and the latest ones."""
    fields = f"{message.header('references')} {message.header('in-reply-to')}"
    found = tuple(dict.fromkeys(each[: SHOWN.subject] for each in _MESSAGE_ID.findall(fields)))
    return found if len(found) <= SHOWN.references else (found[0], *found[1 - SHOWN.references :])


def _recipients(message: Message, limits: Limits) -> tuple[str, ...]:
    found = (address.address for address in read_addresses(message.header("to"), limits) if address.address)
    return tuple(found)[:_SHOWN_ADDRESSES]  # shown: in history
