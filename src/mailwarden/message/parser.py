"""From raw bytes to a Message: the union of what two parsers see in it.

Security: works on hostile bytes inside a killable worker; bounded by the same limits as the structure guard, and
it never raises but for want of memory.
"""

from hashlib import sha256

from mailwarden.message.decoding import decode_transfer, find_embedded
from mailwarden.message.headers import decode_headers
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Message, Part
from mailwarden.message.second_view import SecondPart, view_parts
from mailwarden.message.structure import StructureReport, check_structure
from mailwarden.message.tree import Node, Tree, grow_tree

_ASIDE = 64  # a preamble or epilogue longer than a customary sentence is looked at as a part


class _Collector:
    """Gathers the parts of one message, each content once."""

    def __init__(self, raw: bytes, limits: Limits) -> None:
        self.raw = raw
        self.limits = limits
        self.parts: list[Part] = []
        self.doubts: list[str] = []
        self._known: dict[bytes, int] = {}

    def add(self, node: Node, content: bytes, seen_by: str = "first", suffix: str = "") -> bool:
        """Add a part unless its content is there already; tell whether it was new."""
        if not content or content in self._known or len(self.parts) >= 2 * self.limits.parts:
            return False
        media = node.media
        self._known[content] = len(self.parts)
        path = (node.path or "0") + suffix
        kind = "text/plain" if suffix and media.is_multipart else media.type
        self.parts.append(
            Part(
                path, kind, media.name, media.disposition, media.charset, content, sha256(content).hexdigest(), seen_by
            )
        )
        return True

    def add_tree(self, data: bytes, tree: Tree) -> None:
        for node in tree.nodes:
            if node.media.is_multipart and node.media.boundary:
                self._add_asides(data, node)
            else:
                self._add_leaf(data, node)

    def _add_asides(self, data: bytes, node: Node) -> None:
        if node.preamble_end - node.body > _ASIDE and (text := data[node.body : node.preamble_end].strip()):
            self.add(node, text, suffix=".preamble")
        if (
            node.epilogue >= 0
            and node.end - node.epilogue > _ASIDE
            and (text := data[node.epilogue : node.end].strip())
        ):
            self.add(node, text, suffix=".epilogue")
        if node.preamble_end < 0:
            self.add(node, data[node.body : node.end], suffix=".body")

    def _add_leaf(self, data: bytes, node: Node) -> None:
        body = data[node.body : node.end]
        encoding = node.media.encoding
        decoded = decode_transfer(body, encoding)
        if decoded.doubt:
            self.doubts.append(f"{decoded.doubt} (part {node.path or '0'})")
        self.add(node, decoded.content)
        for number, other in enumerate(decoded.others, 1):
            self.add(node, other, suffix=f".other{number}")
        if node.media.is_message:
            if not node.media.is_plain_message:
                self._add_enclosed(decoded.content, node)
        elif encoding not in {b"base64", b"quoted-printable"} or node.media.type.startswith("text/"):
            for number, other in enumerate(find_embedded(decoded.content), 1):
                self.doubts.append(f"A body holds a file without saying so (part {node.path or '0'})")
                self.add(node, other, suffix=f".embedded{number}")

    def _add_enclosed(self, content: bytes, node: Node) -> None:
        """Go into a message that is wrapped in a transfer encoding; it is smaller than its wrapping, so this ends."""
        if node.depth < self.limits.depth:
            tree = grow_tree(content, self.limits, node.path or "1", node.depth + 1, len(self.parts))
            self.doubts += tree.doubts
            self.doubts += [sentence for _, sentence, _ in tree.trips]
            self.add_tree(content, tree)

    def add_second_view(self, seen: list[SecondPart], nodes: list[Node]) -> None:
        """Join the second view: the same content is one part, seen by both."""
        both: set[int] = set()
        rest: list[SecondPart] = []
        for part in seen:
            index = self._known.get(part.content)
            if index is None:
                rest.append(part)
            else:
                both.add(index)
        if rest:
            rest = self._match_loosely(rest, both)
        for index in both:
            part_seen = self.parts[index]
            self.parts[index] = Part(
                part_seen.path,
                part_seen.media_type,
                part_seen.name,
                part_seen.disposition,
                part_seen.charset,
                part_seen.content,
                part_seen.sha256,
                "both",
            )
        for number, part in enumerate(rest, 1):
            self._add_second(part, number)

    def _match_loosely(self, rest: list[SecondPart], both: set[int]) -> list[SecondPart]:
        """Take contents that differ in line ends or outer white space for the same."""
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
        if part.content in self._known or len(self.parts) >= 2 * self.limits.parts:
            return
        self._known[part.content] = len(self.parts)
        disposition = part.disposition if part.disposition in {"attachment", "inline"} else ""
        self.parts.append(
            Part(
                f"s{number}",
                part.media_type,
                part.name[:1_000],
                disposition,
                "",
                part.content,
                sha256(part.content).hexdigest(),
                "second",
            )
        )


def parse_message(raw: bytes, limits: Limits = LIMITS, report: StructureReport | None = None) -> Message:
    """Parse a message; `report` spares a second walk where the structure guard has just looked at the same bytes."""
    report = report or check_structure(raw, limits)
    tree = report.tree or grow_tree(raw, limits)
    collector = _Collector(raw, limits)
    collector.add_tree(raw, tree)
    if not report.tripped:
        seen = view_parts(raw, limits.parts)
        if seen is not None:
            collector.add_second_view(seen, tree.nodes)
    doubts = dict.fromkeys((*report.ambiguities, *collector.doubts))
    return Message(
        size=len(raw),
        sha256=sha256(raw).hexdigest(),
        headers=decode_headers(tree.nodes[0].fields, limits) if tree.nodes else (),
        parts=tuple(collector.parts),
        ambiguities=tuple(doubts)[: limits.ambiguities],
    )


def _loosen(content: bytes) -> bytes:
    return content.translate(None, b"\r\n \t")
