"""Parses raw bytes into a Message: the union of the parts that two parsers find in it.

Security: works on hostile bytes inside a killable worker, under the limits of `structure`. Lengths in BER are checked
against the bytes present. An error of the second parser means that its view is missing. It never raises, except
MemoryError.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import zip_longest
from typing import NamedTuple

import fast_mail_parser
from msgspec.structs import replace

from mailwarden.message.coverage import Coverage
from mailwarden.message.decoding import decode_transfer, find_embedded
from mailwarden.message.file_names import ending_of
from mailwarden.message.headers import decode_headers
from mailwarden.message.limits import KEPT, LIMITS, Limits
from mailwarden.message.media import bound_name
from mailwarden.message.message import Message, Part
from mailwarden.message.structure import Node, StructureReport, Tree, check_structure, grow_tree
from mailwarden.model.place import Place, area

_SIGNED = bytes.fromhex("06092a864886f70d010702")  # id-signedData, tag and length included
_DATA = bytes.fromhex("06092a864886f70d010701")  # id-data
_WITHIN = 0xA0
_PIECE, _PIECES = 0x04, 0x24
_BEGINNING = 64  # the type identifier is within these bytes, after a tag and a length
_MAX_LENGTH = 4  # not inspection: a longer length is beyond any message
_RUN = re.compile(rb"[!-~]{60,}")
_WIDE = ("utf-16", "utf16", "utf-32", "utf32", "ucs-2", "ucs2")
_SEALED = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_ASIDE = 64  # a longer preamble or epilogue is treated as a part


class SecondPart(NamedTuple):
    media_type: str
    name: str
    disposition: str
    content: bytes


def view_parts(raw: bytes, coverage: Coverage) -> list[SecondPart] | None:
    """Return the decoded leaves that the second parser finds, in order, or None if it rejects the message."""
    try:
        root = fast_mail_parser.parse_email_tree(raw, mode="lazy")
    except (fast_mail_parser.ParseError, ValueError):
        return None
    found: list[SecondPart] = []
    waiting = [root]
    while waiting:
        if len(found) >= coverage.limits.parts:
            coverage.beyond("parts", area("the message"))
            break
        node = waiting.pop()
        if node.children:
            waiting.extend(reversed(node.children))
            continue
        try:
            content = node.content
        except (fast_mail_parser.ParseError, ValueError):
            continue
        if content:
            found.append(SecondPart(node.content_type.lower(), node.filename, node.disposition or "", content))
    return found


def signed_contents(signature: bytes) -> Iterator[bytes]:
    """Yield the content enclosed in a signature; several, if more than one structure looks like it."""
    position = signature.find(_SIGNED, 0, _BEGINNING)
    while position >= 0 and (position := signature.find(_DATA, position)) >= 0:
        position += len(_DATA)
        tag, inner, _ = _head(signature, position)
        if tag != _WITHIN:  # a detached signature, or another use of the same identifier
            continue
        tag, start, end = _head(signature, inner)
        if tag == _PIECE:
            yield signature[start:end]
            position = end
        elif tag == _PIECES:
            content, position = _join(signature, start, end)
            yield content


def _join(signature: bytes, position: int, end: int) -> tuple[bytes, int]:
    """Join the pieces of a constructed octet string; pieces may be nested."""
    joined = bytearray()
    while position < end:
        tag, start, stop = _head(signature, position)
        if tag == _PIECE:
            joined += signature[start:stop]
            position = stop
        elif tag == _PIECES:
            position = start
        else:
            break
    return bytes(joined), position


def _head(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the tag at a position, and the start and end of its content; without a length it ends with the data."""
    if position + 2 > len(data):
        return 0, len(data), len(data)
    tag, length = data[position], data[position + 1]
    position += 2
    if length == 0x80:
        return tag, position, len(data)
    if length > 0x80:
        size = length & 0x7F
        if size > _MAX_LENGTH:
            return 0, len(data), len(data)
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    return tag, position, min(position + length, len(data))


class _Collector:
    """Collects the parts of one message, each content once."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.limits = coverage.limits
        self.parts: list[Part] = []
        self.doubts: list[str] = []
        self._known: dict[bytes, list[int]] = {}  # each content, with the indexes of its parts

    def add(self, node: Node, content: bytes, suffix: str = "", name: str | None = None, media_type: str = "") -> None:
        """Add a part of the first view; the same content under another name or type is another part."""
        media = node.media
        kind = media_type or ("text/plain" if suffix and media.is_multipart else media.type)
        name = media.name if name is None else bound_name(name)
        for index in self._known.get(content, ()):
            if self.parts[index].name == name and self.parts[index].media_type == kind:
                return
        self._keep_by_each_name(
            Part(
                path=(node.path or "0") + suffix,
                media_type=kind,
                name=name,
                disposition=media.disposition,
                charset=media.charset,
                content=content,
                sha256=sha256(content).hexdigest(),
                seen_by="first",
                other_names=media.other_names,
                other_charsets=media.other_charsets,
                joins_lines=media.joins_lines,
                base=media.base,
            )
        )

    def _keep_by_each_name(self, part: Part) -> None:
        """Keep a file once for each extension in its header, because clients choose differently."""
        self._keep(part)
        endings = {ending_of(part.name)}
        for number, name in enumerate(part.other_names, 1):
            if ending_of(name) not in endings:
                endings.add(ending_of(name))
                self._keep(replace(part, name=name, path=f"{part.path}.name{number}"))

    def _keep(self, part: Part) -> None:
        if part.content and len(self.parts) >= 2 * self.limits.parts:  # both views together
            self.coverage.beyond("parts", part.place)
        elif part.content:
            self._known.setdefault(part.content, []).append(len(self.parts))
            self.parts.append(part)

    def add_tree(self, data: bytes, tree: Tree) -> None:
        covered = -1  # the end of an enclosing message that is kept whole: messages in it are not kept whole again
        for node in tree.nodes:
            if node.media.is_multipart and node.media.boundary:
                self._add_asides(data, node)
                for kind in node.media.other_multiparts:
                    self._add_multipart(kind, data[node.body : node.end], node)
                if node.media.encoding in {b"base64", b"quoted-printable"} and not node.children:
                    self._add_encoded(data, node)
            elif not node.media.is_plain_message:
                self._add_leaf(data, node)
            elif node.start >= covered:
                self.add(node, data[node.body : node.end])
                covered = node.end

    def _add_asides(self, data: bytes, node: Node) -> None:
        if node.preamble_end - node.body > _ASIDE and (text := data[node.body : node.preamble_end].strip()):
            self.add(node, text, suffix=".preamble")
            self._doubt_aside(text, node)
        if (
            node.epilogue >= 0
            and node.end - node.epilogue > _ASIDE
            and (text := data[node.epilogue : node.end].strip())
        ):
            self.add(node, text, suffix=".epilogue")
            self._doubt_aside(text, node)
        if node.preamble_end < 0:
            self.add(node, data[node.body : node.end], suffix=".body")

    def _doubt_aside(self, text: bytes, node: Node) -> None:
        """Report text outside of the parts that is not made of words: a ruler or a link is fine, a file is not."""
        for run in _RUN.finditer(text):
            if len(set(run.group())) > 12 and b"://" not in run.group():
                self.doubts.append(f"Something other than words stands outside of the parts (part {node.path or '0'})")
                return

    def _add_leaf(self, data: bytes, node: Node) -> None:
        body = data[node.body : node.end]
        encoding = node.media.encoding
        decoded = decode_transfer(body, encoding)
        if decoded.doubt:
            self.doubts.append(f"{decoded.doubt} (part {node.path or '0'})")
        if node.media.charset.lower().startswith(_WIDE):
            self.doubts.append(f"A text is in a charset that mail does not allow (part {node.path or '0'})")
        self.add(node, decoded.content)
        self._add_repeated(body, decoded.content, node)
        for number, other in enumerate(decoded.others, 1):
            self.add(node, other, suffix=f".other{number}")
        if node.media.is_message:
            self._add_enclosed(decoded.content, node)
            return
        if node.media.type in _SEALED and (signed := tuple(signed_contents(decoded.content))):
            for content in signed:
                self._add_enclosed(content, node)
            return
        readable = encoding not in {b"base64", b"quoted-printable"} or node.media.type.startswith("text/")
        for number, file in enumerate(find_embedded(decoded.content, readable), 1):
            self.doubts.append(f"A body holds a file without saying so (part {node.path or '0'})")
            self.add(node, file.content, f".embedded{number}", file.name or None)

    def _add_repeated(self, body: bytes, content: bytes, node: Node) -> None:
        """Add a part again for each further type or transfer encoding in its header."""
        for value in node.media.other_multiparts:
            self._add_multipart(value, body, node)
        for number, kind in enumerate(node.media.other_types, 1):
            self.add(node, content, suffix=f".type{number}", media_type=kind)
        for number, encoding in enumerate(node.media.other_encodings, 1):
            self.add(node, decode_transfer(body, encoding).content, suffix=f".encoding{number}")
        if node.media.elsewhere:
            self.add(node, node.media.elsewhere.encode(), suffix=".elsewhere", media_type="text/uri-list")

    def _add_encoded(self, data: bytes, node: Node) -> None:
        """Parse a multipart with a transfer encoding, which RFC 2045, section 6.4 forbids and clients decode."""
        kind = next((value for name, value in node.fields if name.strip() == b"content-type"), b"")
        self._add_multipart(kind, decode_transfer(data[node.body : node.end], node.media.encoding).content, node)

    def _add_multipart(self, kind: bytes, body: bytes, node: Node) -> None:
        self._add_enclosed(b"Content-Type:" + kind.strip(b"\r\n") + b"\r\n\r\n" + body, node)

    def _add_enclosed(self, content: bytes, node: Node) -> None:
        """Parse an enclosed message; it is smaller than its enclosing part, so the recursion ends."""
        if node.depth >= self.limits.depth:
            self.coverage.beyond("depth", Place(part=node.path))
        else:
            tree = grow_tree(content, self.limits, node.path or "1", node.depth + 1, len(self.parts))
            self.doubts += tree.doubts
            for limit, sentence, _ in tree.trips:
                self.coverage.beyond(limit, Place(part=node.path), sentence.rstrip("."))
            self.add_tree(content, tree)

    def add_second_view(self, seen: list[SecondPart]) -> None:
        """Join the second view: the same content is one part, seen by both, unless its extension differs."""
        both: set[int] = set()
        rest: list[SecondPart] = []
        for part, expected in zip_longest(seen, tuple(self.parts)[: len(seen)]):
            # Most often both views have the same parts in the same order: to compare is cheaper than to hash.
            is_expected = expected is not None and expected.content == part.content
            same = self._known.get(expected.content if is_expected else part.content)
            if same is None:
                rest.append(part)
                continue
            both.update(same)
            known = {_extension(name) for index in same for name in self.parts[index].names}
            if part.name and _extension(part.name) not in known:
                self.doubts.append("Readers disagree on the name of a file")
                rest.append(part)
        if rest:
            rest = self._match_loosely(rest, both)
        for index in both:
            self.parts[index] = replace(self.parts[index], seen_by="both")
        for number, part in enumerate(rest, 1):
            self._add_second(part, number)

    def _match_loosely(self, rest: list[SecondPart], both: set[int]) -> list[SecondPart]:
        """Match contents that differ only in white space: parsers differ on line ends."""
        loose = {_loosen(part.content): index for index, part in enumerate(self.parts) if index not in both}
        left: list[SecondPart] = []
        for part in rest:
            index = loose.get(_loosen(part.content))
            if index is None:
                left.append(part)
            else:
                both.add(index)
        return left

    def _add_second(self, part: SecondPart, number: int) -> None:
        self._keep(
            Part(
                path=f"s{number}",
                media_type=part.media_type,
                name=bound_name(part.name),
                disposition=part.disposition if part.disposition in {"attachment", "inline"} else "",
                charset="",
                content=part.content,
                sha256=sha256(part.content).hexdigest(),
                seen_by="second",
            )
        )


def parse_message(
    raw: bytes,
    limits: Limits = LIMITS,
    report: StructureReport | None = None,
    coverage: Coverage | None = None,
) -> Message:
    """Parse a message; `report` is the structure report of the same bytes, if there is one."""
    coverage = coverage or Coverage(limits)
    report = report or check_structure(raw, limits)
    tree = report.tree or grow_tree(raw, limits)
    # The second parser copies the message: it comes first, while nothing else is decoded, so that less memory is used.
    seen = None if report.tripped else view_parts(raw, coverage)
    collector = _Collector(coverage)
    collector.add_tree(raw, tree)
    if seen is not None:
        collector.add_second_view(seen)
    doubts = dict.fromkeys((*report.ambiguities, *collector.doubts))
    return Message(
        size=len(raw),
        sha256=sha256(raw).hexdigest(),
        headers=decode_headers(tree.nodes[0].fields, limits) if tree.nodes else (),
        parts=tuple(collector.parts),
        ambiguities=tuple(doubts)[: KEPT.ambiguities],
    )


def _loosen(content: bytes) -> bytes:
    return content.translate(None, b"\r\n \t")


def _extension(name: str) -> str:
    return name.rpartition(".")[2].strip().lower()
