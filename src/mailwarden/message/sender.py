"""Checks that a message has one sender: reasons why two parsers may read different addresses from From.

SPF, DKIM and DMARC authenticate one address, and the recipient reads one. If the two can differ, neither counts. From
is parsed three times: by `addresses`, which the whole product uses; by the grammar of RFC 5322, section 3.4, before
encoded words are decoded; and by a third-party parser.
Security: works on hostile bytes; one pass over the header block, linear patterns, and it never raises.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

import fast_mail_parser

from mailwarden.message.addresses import organisation_of, read_identity
from mailwarden.message.headers import Field, decode_value

MAX_DOUBTS = 5  # not inspection: one is enough
MAX_VALUE = 2_000  # not inspection: a longer From is ambiguous in itself

_FROM = b"from"
# Every line break that some parser accepts: RFC 5322, section 2.1 allows only CRLF.
_ANY_BREAK = re.compile(rb"\r\n|[\r\n\x0b\x0c\x1c-\x1e\x00]|\xc2\x85|\xe2\x80[\xa8\xa9]")
_NOT_GRAPHIC = re.compile(rb"[^!-~]+")
_BLANK = b" \t\r\x0b\x0c\x00"
_FIELD_NAME = re.compile(rb"[!-9;-~]+:")  # RFC 5322, section 3.6.8
_MAILBOX_LINE = re.compile(rb">?From ")  # the envelope line of an mbox file, which every parser skips
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# Embeddings, overrides and isolates: they reorder the text after them (Unicode Annex 9).
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ENCODED_WORD = re.compile(r"=\?[^?\s]{1,40}\?[bBqQ]\?[^?]*\?=")
_CANDIDATE = re.compile(r"([^\s<>()\[\]\",;:@]*)@([^\s<>()\",;:@]*)")
_SPECIALS = re.compile(r'[<>,;:"()\\]')
# A quoted string, a domain literal, an angle address, a separator, a run of other text, or a character that is none.
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[[^\[\]<>"]*\]|<(?:[^<>"]|"(?:[^"\\]|\\.)*")*>|[,;:]|[^"<>,;:()\[\]]+|.', re.DOTALL
)
_CLEAR_SPEC = re.compile(r'(?:[^\s"\\()<>@,;:\[\]]+|"[^"\\@<>\s]*")@(?:[^\s"\\()<>@,;:\[\]]+|\[[^\s"\\()<>@,;\[\]]+\])')


@dataclass(slots=True)
class _Mailbox:
    """One entry of an address list while it is parsed."""

    phrase: list[str] = field(default_factory=list)
    angles: list[str] = field(default_factory=list)
    after: bool = False  # text stands behind the angle address
    stray: bool = False  # a quotation mark, bracket or parenthesis that is never closed
    unquoted: bool = False  # the quotation mark is one of them

    @property
    def text(self) -> str:
        return " ".join(piece for piece in (each.strip() for each in self.phrase) if piece)

    @property
    def spec(self) -> str:
        """The address as written: in angle brackets, or by itself."""
        if self.angles:
            return self.angles[0].strip()
        joined = "".join(self.phrase).strip()
        return joined if "@" in joined else ""


def find_sender_doubts(raw: bytes, body: int, fields: list[Field]) -> tuple[str, ...]:
    """Return why readers may disagree on the sender, as sentences; none for a message with one sender or without.

    `fields` are those of the header block `raw[:body]`.
    """
    found = dict.fromkeys((*_doubt_block(raw, body, fields), *_doubt_values(fields)))
    return tuple(found)[:MAX_DOUBTS]


def find_envelope_doubts(address: str) -> tuple[str, ...]:
    """Return why an envelope sender can be read as several addresses; RFC 5321, section 4.1.2 has the grammar."""
    if not address or "@" not in address or _CLEAR_SPEC.fullmatch(address):
        return ()
    return ("the envelope sender can be read as more than one address",)


def _doubt_block(raw: bytes, body: int, fields: list[Field]) -> Iterator[str]:
    block = raw[:body]
    exact = sum(name == _FROM for name, _ in fields)
    if exact > 1:  # RFC 5322, section 3.6: From occurs once
        yield f"the message has {exact} From fields"
    if any(name != _FROM and _squeeze(name) == _FROM for name, _ in fields):
        # RFC 5322, section 2.2: nothing stands between the name and the colon; section 4.5 had blanks there.
        yield "a From field has something other than its name before the colon"
    if sum(map(_is_from_line, _ANY_BREAK.split(block))) != sum(_squeeze(name) == _FROM for name, _ in fields):
        yield "a From field begins behind a line break that not every reader knows"
    if _ends_early(block):
        yield "a From field follows a line that some readers take for the end of the header"
    if _begins_late(raw, body):
        yield "a From field stands behind the end of the header, where some readers look for it"


def _squeeze(name: bytes) -> bytes:
    return _NOT_GRAPHIC.sub(b"", name).lower()


def _is_from_line(line: bytes) -> bool:
    name, colon, _ = line[:200].partition(b":")  # not inspection: the name of a field
    return bool(colon) and line[:1] not in (b" ", b"\t") and _squeeze(name) == _FROM


def _ends_early(block: bytes) -> bool:
    """Return whether a From field, or its continuation, follows a blank line or a line that is no field."""
    ended = blank = in_from = False
    for number, line in enumerate(block.replace(b"\r\n", b"\n").split(b"\n")):
        if not line:
            continue
        if not line.strip(_BLANK):
            blank = number > 0
            continue
        folded = line[:1] in (b" ", b"\t")
        # Reports folded into a header have blank lines that no reader takes for its end.
        ended, blank = ended or (blank and (in_from or not folded)), False
        if not folded:
            in_from = _is_from_line(line)
        if ended and in_from:
            return True
        if not folded and not _FIELD_NAME.match(line) and not in_from:
            ended = ended or not (number == 0 and _MAILBOX_LINE.match(line))
    return False


def _begins_late(raw: bytes, body: int) -> bool:
    """Return whether a header continues after its end: after empty lines at the top, or after other line ends."""
    rest = raw[body : body + 65_536]
    if not raw[:body].strip():
        start = rest.lstrip(b"\r\n\t ")
        return bool(_FIELD_NAME.match(start)) and any(
            map(_is_from_line, start.replace(b"\r\n", b"\n").partition(b"\n\n")[0].split(b"\n"))
        )
    if raw[:body].endswith(b"\r\n\r\n") or b"\r\n" not in raw[:body]:
        return False
    # RFC 5321, section 2.3.8: only CRLF ends a line, so that for some readers a bare LF did not end the header.
    more = rest.partition(b"\r\n\r\n")[0].split(b"\n")
    return bool(_FIELD_NAME.match(more[0])) and any(map(_is_from_line, more))


def _doubt_values(fields: list[Field]) -> Iterator[str]:
    for name, value in fields:
        if _squeeze(name) == _FROM:
            yield from _doubt_value(value)


def _doubt_value(value: bytes) -> Iterator[str]:
    if len(value) > MAX_VALUE:
        yield "the From field is longer than any reader shows"
        return
    text = value.decode("utf-8", "surrogateescape")
    decoded = decode_value(value)
    if _CONTROL.search(text.strip()) or "\0" in decoded:
        yield "the From field holds a control character"
    if _BIDI.search(decoded) or _BIDI.search(text):
        yield "the From field holds a character that turns the direction of the text"
    mailboxes, loose = _read_mailboxes(text)
    addressed = [mailbox for mailbox in mailboxes if "@" in mailbox.spec]
    if any(each.unquoted for each in addressed):
        yield "the From field has a quotation mark that is never closed"
    yield from _doubt_specs(addressed)
    first = addressed[0].spec.lower() if addressed else ""
    candidates = {pair for source in (text, decoded) for pair in _CANDIDATE.findall(source.lower())}
    if len(candidates) > 1 and (loose or any(map(_is_loose, mailboxes)) or _hides_address(mailboxes)):
        yield "the From field can be read as more than one address"
    if len({organisation_of(each.spec) for each in addressed}) > 1:
        # RFC 7489, section 6.6.1: DMARC has no result for a From with several domains.
        yield "the From field names senders of several organisations"
    others = {_plain(read_identity(decoded).address), _plain(_foreign_reading(value))} - {""}
    if others - {_plain(first)}:
        yield "two parsers read different addresses in the From field"


def _doubt_specs(addressed: list[_Mailbox]) -> Iterator[str]:
    specs = [each.spec for each in addressed]
    if any(len(spec.split()) > 1 for spec in specs):
        yield "an address in the From field has a space in it"
    if any(_ENCODED_WORD.search(spec) for spec in specs):  # RFC 2047, section 5, rule 3
        yield "an address in the From field is written as an encoded word"
    if any(_is_other_text(spec) for spec in specs):
        yield "an address in the From field is written in characters that readers change"


def _is_other_text(spec: str) -> bool:
    """Return whether an address is not UTF-8, or changes when its domain is normalised (RFC 5895)."""
    domain = spec.rpartition("@")[2]
    return not spec.isascii() and (
        any("\ud800" <= character <= "\udfff" for character in spec)
        or "\u3002" in domain
        or unicodedata.normalize("NFKC", domain) != unicodedata.normalize("NFC", domain)
    )


def _is_loose(mailbox: _Mailbox) -> bool:
    """Return whether a mailbox is neither `phrase <address>` nor `address`, so that parsers read it differently."""
    if mailbox.stray or len(mailbox.angles) > 1 or mailbox.after:
        return True
    if "@" in mailbox.spec:
        return not _CLEAR_SPEC.fullmatch(mailbox.spec)
    return "@" in mailbox.text  # `shown@brand.example <>`


def _hides_address(mailboxes: list[_Mailbox]) -> bool:
    """Return whether a parser that decodes encoded words first finds an address in a name (RFC 2047, section 6.2)."""
    for mailbox in mailboxes:
        for word in _ENCODED_WORD.findall(mailbox.text):
            shown = decode_value(word.encode("utf-8", "surrogateescape"))
            if "@" in shown and _SPECIALS.search(shown):
                return True
    return False


def _read_mailboxes(text: str) -> tuple[list[_Mailbox], bool]:
    """Parse an address list by its grammar, and return whether a group or a comment hides an address."""
    text, loose = _without_comments(text)
    found = [_Mailbox()]
    for match in _TOKEN.finditer(text):
        piece = match.group()
        last = found[-1]
        if piece in (",", ";"):
            found.append(_Mailbox())
        elif piece == ":":  # the name of a group (RFC 5322, section 3.4); it has no address
            loose = loose or "@" in last.text or bool(last.angles)
            found[-1] = _Mailbox(phrase=last.phrase if "@" in last.text else [])
        elif piece[0] == "<" and len(piece) > 1:
            last.angles.append(piece[1:-1])
        elif len(piece) == 1 and piece in '"<>()[]':
            last.stray = True
            last.unquoted = last.unquoted or piece == '"'
        elif piece.strip():
            last.after = last.after or bool(last.angles)
            last.phrase.append(piece)
        elif last.phrase:
            last.phrase.append(piece)
    return found, loose


def _without_comments(text: str) -> tuple[str, bool]:
    """Remove comments; return whether one is inside an address or never closed (RFC 5322, section 3.2.2)."""
    if "(" not in text:
        return text, False
    kept: list[str] = []
    depth = last = 0
    loose = False
    for match in re.finditer(r'\\.|"(?:[^"\\]|\\.)*"|[()]', text, re.DOTALL):
        character = match.group()
        if character == "(":
            if depth == 0:
                kept.append(text[last : match.start()])
                loose = loose or text[match.start() - 1 : match.start()] not in ("", " ", "\t", ">", '"', ",")
            depth += 1
        elif character == ")" and depth:
            depth -= 1
            last = match.end()
            loose = loose or (depth == 0 and text[last : last + 1] not in ("", " ", "\t", "<", ",", ";"))
        elif character == ")":
            loose = True
    kept.append(text[last:] if depth == 0 else "")
    return " ".join(kept), loose or depth > 0


def _foreign_reading(value: bytes) -> str:
    """Return the address that the third-party parser reads, or ""."""
    try:
        sender = fast_mail_parser.parse_email(b"From:" + value.replace(b"\r", b" ") + b"\r\n\r\n").from_
    except (fast_mail_parser.ParseError, ValueError):
        return ""
    return str(sender.address) if sender is not None and "@" in str(sender.address) else ""


def _plain(address: str) -> str:
    """Return an address as it is compared: lower case, without quotation marks that quote nothing."""
    local, at, domain = address.strip().lower().rpartition("@")
    if len(local) > 2 and local[0] == local[-1] == '"' and not _SPECIALS.search(local[1:-1]):
        local = local[1:-1]
    return f"{local}@{domain.rstrip('.')}" if at else ""
