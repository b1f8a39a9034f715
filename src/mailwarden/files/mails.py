"""Reads messages in files: .eml, .mht, mailboxes, messages saved by Outlook (.msg), S/MIME and OpenPGP.

Security: reads hostile bytes inside a killable worker under the limits of the outer message; unreadable content is
recorded as missed.
"""

import binascii
import io
import re
from collections.abc import Iterator

from mailwarden.files.container import Entry, Exhausted, Opening, SeenFile
from mailwarden.files.file_types import is_shown
from mailwarden.files.tnef import body_of
from mailwarden.message.file_names import ending_of
from mailwarden.message.parser import parse_message, signed_contents
from mailwarden.message.structure import check_structure

_MAIL_NAMES = frozenset({"eml", "mht", "mhtml", "mim", "mime", "nws", "emlx"})
_PARSED_TYPES = frozenset({"message/rfc822", "message/global", "message/news"})
_FRONT = b"\xef\xbb\xbf \t\r\n"  # skipped by clients before the first field
_FIELD = re.compile(rb"(?:[A-Za-z][A-Za-z0-9-]{1,60})[ \t]*:")
_MAIL_FIELDS = re.compile(
    rb"(?im)^(?:from|received|return-path|mime-version|content-type|subject|date|to|message-id|x-[a-z-]{2,30})[ \t]*:"
)
_MAILBOX = re.compile(rb"From [^\r\n]*\d\d:\d\d[^\r\n]*\r?\n(?:>?From |[A-Za-z-]+:)")
_ENVELOPE = re.compile(rb"(?:\A|\n\r?\n)From [^\r\n]*\r?\n")
_STREAM = "__substg1.0_"
_STREAM_MARK = _STREAM.encode("utf-16-le")
_ATTACHED, _NAMES = "3701", ("3707", "3704", "3001")
_BODIES = ("1000", "1013", "1009")
_WIDE = "001F"
_CMS = re.compile(
    rb"\x30[\x80-\x88][\0-\xff]{0,8}?\x06[\x09\x0b]\x2a\x86\x48\x86\xf7\x0d\x01(\x07[\x02-\x06]|\x09\x10\x01[\x02\x09\x17])"
)
_SIGNED, _DIGESTED, _AUTHENTICATED, _COMPRESSED = b"\x07\x02", b"\x07\x05", b"\x09\x10\x01\x02", b"\x09\x10\x01\x09"
_DETACHED = re.compile(rb"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01(?!\xa0)")  # a detached signature
_ARMOR = re.compile(rb"-----BEGIN (?:CMS|PKCS ?7|PKCS #7 SIGNED DATA)-----\s+([A-Za-z0-9+/=\s]+)-----END")
_PGP = b"-----BEGIN PGP MESSAGE-----"
_PGP_NAMES = frozenset({"pgp", "gpg"})
_PGP_PACKETS = frozenset({0x84, 0x85, 0x86, 0x8C, 0x8D, 0x8E, 0xC1, 0xC3, 0xC9, 0xD2, 0xA3, 0xC8})  # of messages


def is_mail(file: SeenFile) -> bool:
    """Return whether this is a message, by its name or by the header fields at its beginning."""
    if file.media_type in _PARSED_TYPES:
        return False  # the parser has looked into it
    if ending_of(file.name) in _MAIL_NAMES:
        return True
    head = file.content[:4_096].lstrip(_FRONT)  # not inspection: a message begins with header fields
    return _FIELD.match(head) is not None and len({each.lower() for each in _MAIL_FIELDS.findall(head)}) >= 2


def is_mailbox(file: SeenFile) -> bool:
    return _MAILBOX.match(file.content[:2_048]) is not None  # not inspection: the beginning decides the type


def is_outlook(file: SeenFile) -> bool:
    return file.content.startswith(b"\xd0\xcf\x11\xe0") and _STREAM_MARK in file.content


def is_cms(file: SeenFile) -> bool:
    return _CMS.match(file.content[:32]) is not None


def is_armored_cms(file: SeenFile) -> bool:
    return b"-----BEGIN " in file.content[:64] and _ARMOR.search(file.content) is not None


def read_armored_cms(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield a signed or encrypted message out of its armor (RFC 7468)."""
    armor = _ARMOR.search(file.content)
    try:
        content = binascii.a2b_base64(armor[1]) if armor else b""
    except binascii.Error:
        opening.damaged(file.place, "its armor cannot be decoded")
        return
    yield Entry("smime.p7m", content)


def is_pgp(file: SeenFile) -> bool:
    """Return whether this is an OpenPGP message, by its armor, or by its name and first packet (RFC 9580 4.2)."""
    if ending_of(file.name) in _PGP_NAMES and file.content[:1] and file.content[0] in _PGP_PACKETS:
        return True
    return _PGP in file.content


def read_mail(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files of a message, and its texts."""
    content = file.content.lstrip(_FRONT)
    report = check_structure(content, opening.limits)
    for trip in report.tripped:
        opening.coverage.beyond(trip.limit, file.place, trip.sentence.rstrip("."))
    if report.tripped:
        return
    for part in parse_message(content, opening.limits, report, opening.coverage).parts:
        is_body = is_shown(part)
        name = ("text.html" if part.media_type == "text/html" else "text.txt") if is_body else part.name
        yield Entry(
            name,
            part.content,
            part.media_type,
            part.charsets,
            is_body,
            joins_lines=part.joins_lines,
            base=part.base,
        )


def read_mailbox(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the messages of a mailbox (RFC 4155)."""
    matches = list(_ENVELOPE.finditer(file.content))
    for number, match in enumerate(matches):
        opening.check_time(file.place)
        end = matches[number + 1].start() if number + 1 < len(matches) else len(file.content)
        yield Entry(f"message {number + 1}.eml", file.content[match.end() : end])


def read_cms(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the content of a signature (RFC 5652); content that S/MIME encrypts is recorded as missed."""
    kind = _CMS.match(file.content[:32])
    if kind is not None and kind[1] in {_SIGNED, _DIGESTED, _AUTHENTICATED}:
        found = list(signed_contents(file.content)) if kind[1] == _SIGNED else []
        yield from (Entry("signed message.eml", signed) for signed in found)
        if not found and not (kind[1] == _SIGNED and _DETACHED.search(file.content)):
            opening.unsupported(file.place, "S/MIME holds content of a kind that we cannot read")
    elif kind is not None and kind[1] == _COMPRESSED:
        opening.unsupported(file.place, "it is compressed by S/MIME")
    else:
        opening.encrypted(file.place, "it is encrypted by S/MIME")


def read_pgp(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Record content that OpenPGP encrypts (RFC 9580)."""
    opening.encrypted(file.place, "it is encrypted by OpenPGP")
    yield from ()


def read_outlook(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files and texts of a message that Outlook saved (MS-OXMSG), and of the messages inside it."""
    import olefile  # noqa: PLC0415 - slow to import, and few messages need it

    try:
        with olefile.OleFileIO(io.BytesIO(file.content)) as ole:
            streams = ole.listdir()
            known = {tuple(path) for path in streams}
            for path in streams:
                opening.check_time(file.place)
                yield from _stream(ole, path, known, file, opening)
            if ole.parsing_issues:
                opening.damaged(file.place, "the saved message is damaged")
    except (Exhausted, MemoryError):
        raise
    except Exception as error:  # a broken compound file raises any exception
        opening.damaged(file.place, f"the saved message cannot be read: {type(error).__name__}")


def _stream(
    ole: object, path: list[str], known: set[tuple[str, ...]], file: SeenFile, opening: Opening
) -> Iterator[Entry]:
    name = path[-1]
    if not name.startswith(_STREAM):
        return
    tag, of_type = name[len(_STREAM) :][:4], name[len(_STREAM) + 4 :][:4]
    if tag != _ATTACHED and tag not in _BODIES:
        return
    content = opening.read([_read(ole, path)], len(file.content), file.place)
    if content is None:
        return
    if tag in _BODIES:
        yield from body_of(int(tag, 16), int(of_type, 16), content, file.place, opening)
        return
    shown = dict.fromkeys(_names(ole, path[:-1], known))
    endings: set[str] = set()
    for each in shown or [""]:
        if ending_of(each) not in endings:
            endings.add(ending_of(each))
            yield Entry(each, content)


def _names(ole: object, folder: list[str], known: set[tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of an attached file, the one that is shown first."""
    for tag in _NAMES:
        for of_type in (_WIDE, "001E"):
            path = [*folder, f"{_STREAM}{tag}{of_type}"]
            if tuple(path) in known:
                raw = _read(ole, path)
                name = raw.decode("utf-16-le" if of_type == _WIDE else "cp1252", "replace").rstrip("\0")
                if name:
                    yield name


def _read(ole: object, path: list[str]) -> bytes:
    return bytes(ole.openstream(path).read())  # type: ignore[attr-defined]  # olefile publishes no types
