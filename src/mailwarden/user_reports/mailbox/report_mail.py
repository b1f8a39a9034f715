"""Reads the mail of a report mailbox: the reporter, the kind of the report and the reported messages.

| format | how it is recognized |
|---|---|
| `arf` | a part `message/feedback-report` (RFC 5965); the original is whole, or its header alone |
| `microsoft` | an attachment, and a subject that begins with `1|`, `2|`, `3|`, `Junk:`, `Not junk:` or `Phishing:` |
| `attached` | a part `message/rfc822`, or a file `*.eml` of any type, as Gmail and Outlook forward as attachment |
| `inline` | a quoted header block in the text, with From and Subject in one of the languages below |

Security: works on hostile bytes. The tree of parts grows within the limits of `message/limits.py`, and every text,
line and original here has a limit of its own. Nothing raises. Sender and content of a report may be forged: nothing in
it proves the reporter or the original.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from hashlib import sha256
from html import unescape

from msgspec import Struct

from mailwarden.message.addresses import read_identity
from mailwarden.message.charsets import decode_text
from mailwarden.message.decoding import decode_transfer
from mailwarden.message.headers import decode_headers, read_fields
from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Header
from mailwarden.message.structure import Node, Tree, grow_tree
from mailwarden.user_reports.reports import Kind

MAX_REPORT = 52_428_800  # bytes
MAX_ORIGINALS = 10  # messages in one report
MAX_TEXT = 65_536  # characters of a text that are searched for a quoted header block
MAX_LINES = 1_000
BLOCK_LINES = 14  # of a quoted header block
MAX_MESSAGE_ID = 998
MAX_SUBJECT = 998
MAX_ADDRESS = 320

# Microsoft's reports: action, network message id, client address, sender, and the subject in parentheses.
_MICROSOFT = re.compile(r"\s*([123])\|[^|]{0,64}\|[^|]{0,64}\|([^|]{0,400})\|\s*\((.*)\)\s*", re.DOTALL)
_MICROSOFT_SHORT = re.compile(r"\s*([123])\|(.*)", re.DOTALL)
_MICROSOFT_WORDS = re.compile(r"\s*(junk|not junk|phishing):(.*)", re.IGNORECASE | re.DOTALL)
_MICROSOFT_KINDS = {
    "1": Kind.SPAM,
    "2": Kind.GOOD,
    "3": Kind.PHISHING,
    "junk": Kind.SPAM,
    "not junk": Kind.GOOD,
    "phishing": Kind.PHISHING,
}
# RFC 5965, section 7.3, and `not-spam` of RFC 6430.
_FEEDBACK_KINDS = {"abuse": Kind.SPAM, "fraud": Kind.PHISHING, "virus": Kind.PHISHING, "not-spam": Kind.GOOD}

_FROM = (
    "from|von|de|da|van|från|fra|od|от|feladó|lähettäjä|gönderen|kimden|expéditeur|remetente|remitente|mittente|"
    "afzender|avsändare|nadawca|odesílatel|发件人|寄件者|差出人|送信者|보낸 사람"
)
_SUBJECT = (
    "subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat|předmět|assunto|тема|tárgy|aihe|konu|"
    "主题|主旨|件名|제목"
)
_MESSAGE_ID = "message-id|nachrichten-id|id de message|id del mensaje"
_LABEL = r"\s*[>|\s]{0,20}[*_]{0,2}(?:%s)[*_]{0,2}\s{0,3}[:：][*_]{0,2}\s*(.*)"
_FROM_LINE = re.compile(_LABEL % _FROM, re.IGNORECASE)
_SUBJECT_LINE = re.compile(_LABEL % _SUBJECT, re.IGNORECASE)
_ID_LINE = re.compile(_LABEL % _MESSAGE_ID, re.IGNORECASE)
_ID = re.compile(r"<[^<>\s]{1,900}>")
_PREFIX = re.compile(r"^(?:\s*(?:fw|fwd|wg|tr|rv|i|vs|doorst|enc)\s*:)+\s*", re.IGNORECASE)
_BREAK = re.compile(r"<(?:br|/p|/div|/tr|/li|/h[1-6])\b[^<>]{0,200}>", re.IGNORECASE)
_TAG = re.compile(r"<(?![^\s<>@]{1,64}@)[^<>]{0,2000}>")
_HEADERS_ONLY = frozenset({"text/rfc822-headers", "message/rfc822-headers", "message/global-headers"})
_MESSAGES = frozenset({"message/rfc822", "message/global"})
_FEEDBACK = "message/feedback-report"


class ReportFormat(StrEnum):
    ARF = "arf"
    MICROSOFT = "microsoft"
    ATTACHED = "attached"
    INLINE = "inline"
    UNREADABLE = "unreadable"  # no reported message was found in it


class Original(Struct, frozen=True):
    """A reported message, as far as the report shows it; `content` is None if only its header was found."""

    message_id: str = ""
    subject: str = ""
    sender: str = ""  # the address in From
    content: bytes | None = None
    # SHA-256 of the content as it is attached, and as it was before a mail program changed its line ends.
    digests: tuple[str, ...] = ()


class ReportMail(Struct, frozen=True):
    """The content of one mail to a report mailbox."""

    format: ReportFormat
    reporter: str = ""  # the address in From, "" unless there is exactly one; it is not proved here
    kind: Kind | None = None  # None: the format does not say
    originals: tuple[Original, ...] = ()
    automatic: bool = False  # written by a program or a mailing list: it gets no answer


def read_report(raw: bytes) -> ReportMail:
    """Return the content of a report; the format is `unreadable` if it has no reported message."""
    raw = raw[:MAX_REPORT]
    tree = grow_tree(raw)
    headers = decode_headers(tree.nodes[0].fields) if tree.nodes else ()
    reporter, automatic = _reporter(headers), _is_automatic(headers)
    subject = _value(headers, "subject")
    attached = _attached(raw, tree)
    feedback = next((node for node in tree.nodes if node.media.type == _FEEDBACK), None)
    if feedback is not None:
        kind = _FEEDBACK_KINDS.get(_feedback_type(raw, feedback))
        originals = attached or _header_only(raw, tree)
        return ReportMail(_unless(originals, ReportFormat.ARF), reporter, kind, originals, automatic=True)
    microsoft_kind = _microsoft_kind(subject)
    if attached:
        form = ReportFormat.ATTACHED if microsoft_kind is None else ReportFormat.MICROSOFT
        return ReportMail(form, reporter, microsoft_kind, attached, automatic)
    if originals := _header_only(raw, tree):
        return ReportMail(ReportFormat.ATTACHED, reporter, microsoft_kind, originals, automatic)
    originals = _inline(raw, tree, subject)
    return ReportMail(_unless(originals, ReportFormat.INLINE), reporter, microsoft_kind, originals, automatic)


def read_original(content: bytes) -> Original:
    """Return what the header of a whole message shows of it."""
    headers = _head_of(content)
    return Original(
        message_id=message_id_of(_value(headers, "message-id")),
        subject=_value(headers, "subject")[:MAX_SUBJECT],
        sender=read_identity(_value(headers, "from")).address[:MAX_ADDRESS],
        content=content,
        digests=_digests(content),
    )


def message_id_of(value: str) -> str:
    """Return the Message-ID in its brackets, as different spellings share it; "" if there is none."""
    found = _ID.search(value[:MAX_MESSAGE_ID])
    if found is not None:
        return found.group()
    bare = value[:MAX_MESSAGE_ID].strip("<> \t")
    return f"<{bare}>" if bare and " " not in bare else ""


def _unless(originals: Sequence[Original], form: ReportFormat) -> ReportFormat:
    return form if originals else ReportFormat.UNREADABLE


def _reporter(headers: Sequence[Header]) -> str:
    fields = [header.value for header in headers if header.name == "from"]
    identity = read_identity(fields[0]) if len(fields) == 1 else None
    return identity.address[:MAX_ADDRESS] if identity is not None and identity.addresses == 1 else ""


def _is_automatic(headers: Sequence[Header]) -> bool:
    """RFC 3834, section 5; Precedence and List-Id by custom."""
    submitted = _value(headers, "auto-submitted").lower()
    if submitted and not submitted.startswith("no"):
        return True
    if _value(headers, "precedence").lower() in {"bulk", "list", "junk", "auto_reply"}:
        return True
    return bool(_value(headers, "list-id") or _value(headers, "x-autoreply"))


def _microsoft_kind(subject: str) -> Kind | None:
    for pattern in (_MICROSOFT, _MICROSOFT_SHORT, _MICROSOFT_WORDS):
        if found := pattern.fullmatch(subject[:4_000]):
            return _MICROSOFT_KINDS[found[1].lower()]
    return None


def _attached(raw: bytes, tree: Tree) -> tuple[Original, ...]:
    """Return the messages that are attached, not those inside of them."""
    found: list[Original] = []
    covered = -1
    for node in tree.nodes[1:] if tree.nodes and not _is_message(tree.nodes[0]) else tree.nodes:
        if node.start < covered or len(found) >= MAX_ORIGINALS:
            continue
        if _is_message(node):
            covered = node.end
            content = raw[node.body : node.end]
            if not node.media.is_plain_message:
                content = decode_transfer(content, node.media.encoding).content
            if original := _checked(content):
                found.append(original)
    return tuple(found)


def _is_message(node: Node) -> bool:
    """Return whether a part is an attached message: by its type, or by the name of a file of another type."""
    if node.media.type in _MESSAGES:
        return True
    if node.media.is_multipart or node.media.type == _FEEDBACK:
        return False
    return any(name.lower().rstrip(" .").endswith(".eml") for name in (node.media.name, *node.media.other_names))


def _checked(content: bytes) -> Original | None:
    """Return the original unless it has no header that any message has."""
    content = content.lstrip(b"\r\n")
    original = read_original(content) if content else None
    known = original is not None and (original.message_id or original.sender or original.subject)
    return original if known else None


def _header_only(raw: bytes, tree: Tree) -> tuple[Original, ...]:
    """Return the originals of which a report has the header alone (RFC 6522, section 4)."""
    found: list[Original] = []
    for node in tree.nodes:
        if node.media.type in _HEADERS_ONLY and len(found) < MAX_ORIGINALS:
            original = read_original(decode_transfer(raw[node.body : node.end], node.media.encoding).content)
            if original.message_id or original.sender:
                found.append(Original(original.message_id, original.subject, original.sender))
    return tuple(found)


def _feedback_type(raw: bytes, node: Node) -> str:
    body = decode_transfer(raw[node.body : node.end][: LIMITS.header_block], node.media.encoding).content
    return _value(decode_headers(read_fields(body)), "feedback-type").lower()


def _inline(raw: bytes, tree: Tree, subject: str) -> tuple[Original, ...]:
    """Return the message whose header block is quoted in a text; plain text is read before HTML."""
    nodes = [node for node in tree.nodes if node.media.type in ("text/plain", "text/html")][:MAX_ORIGINALS]
    for node in sorted(nodes, key=lambda each: each.media.type, reverse=True):  # plain first
        if original := _quoted(_lines(raw, node), subject):
            return (original,)
    return ()


def _lines(raw: bytes, node: Node) -> list[str]:
    content = decode_transfer(raw[node.body : node.end][: 8 * MAX_TEXT], node.media.encoding).content
    text = decode_text(content[: 4 * MAX_TEXT], node.media.charset)[: 4 * MAX_TEXT]
    if node.media.type == "text/html":
        text = unescape(_TAG.sub("", _BREAK.sub("\n", text.replace("\n", " "))))
    return [line.strip()[:2_000] for line in text[:MAX_TEXT].splitlines()[:MAX_LINES]]


def _quoted(lines: Sequence[str], subject: str) -> Original | None:
    for number, line in enumerate(lines):
        found = _FROM_LINE.fullmatch(line)
        sender = read_identity(found[1]).address if found else ""
        if not sender:
            continue
        block = lines[number + 1 : number + 1 + BLOCK_LINES]
        if (title := _first(_SUBJECT_LINE, block)) is not None:
            identifier = _first(_ID_LINE, block) or ""
            shown = title or _PREFIX.sub("", subject)
            return Original(message_id_of(identifier), shown[:MAX_SUBJECT], sender[:MAX_ADDRESS])
    return None


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    return next((found[1].strip() for found in _matches(pattern, lines)), None)


def _matches(pattern: re.Pattern[str], lines: Sequence[str]) -> Iterator[re.Match[str]]:
    return (found for line in lines if (found := pattern.fullmatch(line)))


def _head_of(content: bytes) -> tuple[Header, ...]:
    block = content[: LIMITS.header_block].replace(b"\r\n", b"\n")
    end = block.find(b"\n\n")
    return decode_headers(read_fields(block[:end] if end >= 0 else block))


def _value(headers: Sequence[Header], name: str) -> str:
    return next((header.value for header in headers if header.name == name), "")


def _digests(content: bytes) -> tuple[str, ...]:
    """Return the digests under which a scan may have stored the message.

    The line end before a boundary belongs to the boundary (RFC 2046, section 5.1.1), so the last one may be missing.
    """
    lines = content if b"\n" not in content.replace(b"\r\n", b"") else _with_line_ends(content)
    found: list[str] = []
    for form in (content, lines) if lines is not content else (content,):
        digest = sha256(form)
        found.append(digest.hexdigest())
        digest.update(b"\r\n")
        found.append(digest.hexdigest())
    return tuple(found)


def _with_line_ends(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
