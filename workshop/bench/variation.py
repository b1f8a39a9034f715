"""Varies a message, so that no cache of an engine or of Mailwarden has the answer for it or for one of its parts.

Headers and parts keep their order, their encoding and about their size. Every part gets its own content: a text a line
of plain words, a picture or a document bytes where its format ignores them. Files inside a document or an archive stay.
"""

import base64
import binascii
import itertools
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import BytesHeaderParser

# No word is a brand or a term of a rule.
_WORDS = re.findall(
    r"\w+",
    "acorn amber aspen autumn badger barley beech birch bramble breeze brook cherry clover cobble copper dune "
    "elder ember fern finch flax forest garnet granite hazel hollow ivory juniper kestrel kiln larch lichen "
    "lilac linen lupin mallow maple marble meadow moss nettle oak orchard otter pebble pine plum poplar quartz "
    "raven reed river rowan saddle sorrel sparrow spruce teasel thistle timber tulip violet walnut willow",
)
_EACH = 4
_TOTAL = len(_WORDS) ** _EACH
_STEP = 9_182_731  # has no factor in common with the total, so that neighbours differ in all words

_PARSER = BytesHeaderParser()
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_MESSAGE_ID = re.compile(rb"(?im)^(message-id:\s*<)([^@>\r\n]+)")
_DATE_SECONDS = re.compile(rb"(?im)^(date:[^\r\n]*\d\d:\d\d:)\d\d")
_TAG = re.compile(rb"(?is)<style.*?</style>|<[^>]*>|&nbsp;")
_END = re.compile(rb"\s*\Z")
_BODY_END = re.compile(rb"(?i)</body>|\s*\Z")
_CLASSES = (b"0123456789", b"abcdef", b"ghijklmnopqrstuvwxyz", b"ABCDEF", b"GHIJKLMNOPQRSTUVWXYZ")


class Variation:
    """Returns the messages of one size, one after the other, each of them different from all before."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = messages
        self._numbers = itertools.count()

    def take(self, count: int) -> list[bytes]:
        """Make the messages of one round. Call it before the round, so that its work is not measured."""
        numbers = itertools.islice(self._numbers, count)
        return [vary(self._messages[number % len(self._messages)], number) for number in numbers]


def vary(message: bytes, number: int) -> bytes:
    """Return the message with other content in its Message-ID, its Date and every part; the number decides which."""
    dice = random.Random(number)
    head, gap, body = _split(message)
    head = _MESSAGE_ID.sub(lambda found: found[1] + _same_form(found[2], dice), head, count=1)
    head = _DATE_SECONDS.sub(lambda found: found[1] + b"%02d" % dice.randrange(60), head, count=1)
    return head + gap + _vary_body(_PARSER.parsebytes(head), body, words(number))


def words(number: int) -> str:
    """Return four words that no other number below sixteen million has."""
    left = (number + 1) * _STEP % _TOTAL
    chosen = []
    for _ in range(_EACH):
        left, index = divmod(left, len(_WORDS))
        chosen.append(_WORDS[index])
    return " ".join(chosen)


def _vary_body(fields: Message, body: bytes, token: str) -> bytes:
    kind = fields.get_content_type()
    boundary = fields.get_boundary()
    if fields.get_content_maintype() == "multipart" and boundary is not None:
        return b"".join(_vary_parts(body, boundary, token))
    if kind == "message/rfc822":
        head, gap, inner = _split(body)
        return head + gap + _vary_body(_PARSER.parsebytes(head), inner, token)
    encoding = str(fields.get("content-transfer-encoding", "")).strip().lower()
    charset = fields.get_content_charset("ascii")
    file = fields.get_content_disposition() == "attachment"
    if encoding == "base64":
        try:
            data = binascii.a2b_base64(body)
        except binascii.Error:  # characters are missing: decoding and encoding would repair the part
            return _splice(body, token)
        return _encode_base64(_add(kind, data, token, charset, file=file), body) if data else body
    content = body.rstrip(b"\r\n")  # the last line end belongs to the delimiter that follows
    charset = "ascii" if encoding == "quoted-printable" else charset
    return _add(kind, content, token, charset, file=file) + body[len(content) :]


def _vary_parts(body: bytes, boundary: str, token: str) -> Iterator[bytes]:
    delimiter = re.compile(rb"(?m)^(--" + re.escape(boundary.encode("ascii", "replace")) + rb"(--)?[ \t]*\r?(?:\n|\Z))")
    preamble, *rest = delimiter.split(body)
    yield preamble
    for line, closing, content in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        yield line
        if closing:
            yield content
            continue
        head, gap, inner = _split(content)
        yield head + gap + _vary_body(_PARSER.parsebytes(head), inner, token)


def _split(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a message or a part into its header, the empty line and its body."""
    if content.startswith((b"\n", b"\r\n")):  # a part without header fields
        end = content.index(b"\n") + 1
        return b"", content[:end], content[end:]
    found = _HEAD_END.search(content)
    if found is None:
        return content, b"", b""
    return content[: found.start()], found[0], content[found.end() :]


def _add(kind: str, data: bytes, token: str, charset: str, *, file: bool) -> bytes:
    """Add the token to the decoded content of a part; a part without text gets none that a reader can see."""
    if kind == "text/html":
        shown = not file and _TAG.sub(b"", data).strip()
        return _add_line(data, f"<p>{token}</p>" if shown else f"<!-- {token} -->", charset, _BODY_END)
    if kind == "message/delivery-status":
        return _add_line(data, f"X-Reference: {token}", charset)
    if kind.startswith("text/"):
        return _add_line(data, token, charset) if data.strip() else data
    if data.lstrip().startswith(b"<"):
        return _add_line(data, f"<!-- {token} -->", charset)
    return _add_to_file(data, token.encode("ascii"))


def _add_line(data: bytes, line: str, charset: str, end: re.Pattern[bytes] = _END) -> bytes:
    found = end.search(data)
    place = len(data) if found is None else found.start()
    newline = "\r\n" if b"\r\n" in data else "\n"
    try:
        added = (newline + line).encode(charset)
    except LookupError:
        added = (newline + line).encode("ascii")
    return data[:place] + added + data[place:]


def _add_to_file(data: bytes, token: bytes) -> bytes:
    """Add the token where readers of the format ignore it; at the end of a file of an unknown format."""
    if data.startswith(b"\xff\xd8\xff"):  # JPEG: a comment segment after the first segment
        place = 4 + int.from_bytes(data[4:6]) if data[3] in {0xE0, 0xE1} else 2
        return data[:place] + b"\xff\xfe" + (len(token) + 2).to_bytes(2) + token + data[place:]
    if data.startswith(b"\x89PNG\r\n\x1a\n"):  # PNG: a text chunk after the header chunk
        chunk = b"tEXtComment\0" + token
        return data[:33] + (len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) + data[33:]
    if data.startswith(b"GIF8") and data.endswith(b";"):  # GIF: a comment before the trailer
        return data[:-1] + b"!\xfe" + len(token).to_bytes(1) + token + b"\0;"
    if data.startswith(b"%PDF-"):  # PDF: a comment after the last line
        return data + b"%" + token + b"\n"
    if data[-22:-18] == b"PK\5\6":  # ZIP: the comment of the archive
        return data[:-2] + len(token).to_bytes(2, "little") + token
    return data + token


def _encode_base64(data: bytes, before: bytes) -> bytes:
    """Encode with the line length and the line ends that the part had before."""
    first, _, _ = before.lstrip().partition(b"\n")
    length = len(first.rstrip()) or 76
    end = b"\r\n" if first.endswith(b"\r") else b"\n"
    text = base64.b64encode(data)
    lines = [text[start : start + length] for start in range(0, len(text), length)]
    after = before[len(before.rstrip()) :]
    return before[: len(before) - len(before.lstrip())] + end.join(lines) + after


def _splice(encoded: bytes, token: str) -> bytes:
    """Add a whole number of encoded triples before the last line, so that the lines around it decode as before."""
    triples = base64.b64encode(token.ljust(-(-len(token) // 3) * 3).encode("ascii"))
    *lines, last = encoded.rstrip().splitlines(keepends=True)
    end = b"\r\n" if b"\r\n" in encoded else b"\n"
    return b"".join((*lines, triples, end, last, encoded[len(encoded.rstrip()) :]))


def _same_form(text: bytes, dice: random.Random) -> bytes:
    """Replace digits by digits and letters by letters, so that the rules about the form of an ID see the same one."""
    return bytes(next((dice.choice(each) for each in _CLASSES if byte in each), byte) for byte in text)
