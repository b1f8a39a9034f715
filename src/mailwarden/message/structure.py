"""The structure guard: one pass over the raw bytes that stops structural bombs before any parser or engine.

Security: the first code that touches hostile bytes; bounded by limits, linear, and it never raises.
"""

import re
from mmap import mmap

from msgspec import Struct

from mailwarden.message.fields import Field, nests_deeper, read_parameters
from mailwarden.message.headers import LONG_HEADERS
from mailwarden.message.limits import KEPT, LIMITS, Limits
from mailwarden.message.tree import Node, Tree, grow_tree
from mailwarden.model.place import WHOLE_MESSAGE, Place, area

_ADDRESS_HEADERS = frozenset({b"from", b"to", b"cc", b"bcc", b"reply-to", b"sender"})
_STRUCTURED = _ADDRESS_HEADERS | {b"received", b"content-type", b"content-disposition", b"content-transfer-encoding",
                                  b"mime-version", b"date", b"message-id", b"references", b"in-reply-to"}  # fmt: skip
_ASIDE = 65_536
_BLANK_LINE = re.compile(rb"\n[ \t]+\r?(?:\n|\Z)")
_HIDDEN_PART = re.compile(rb"(?:\A|\n)content-(?:type|transfer-encoding|disposition)[ \t]*:", re.IGNORECASE)
_ENCODING_FIELD = re.compile(rb"(?:\A|\n)content-transfer-encoding[ \t]*:", re.IGNORECASE)
_OTHER_BREAKS = re.compile(rb"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")


LINES = "lines"  # the one limit beyond which no engine is asked: one may take gigabytes for such a message


class Trip(Struct, frozen=True):
    """A limit that the message ran into: its name in `Limits`, a sentence for people, the place in the message."""

    limit: str
    sentence: str
    place: Place = WHOLE_MESSAGE


class StructureReport(Struct, frozen=True):
    tripped: tuple[Trip, ...] = ()
    ambiguities: tuple[str, ...] = ()
    tree: Tree | None = None  # what the parser goes on with; not for the wire


def check_structure(raw: bytes | memoryview | mmap, limits: Limits = LIMITS) -> StructureReport:
    """Walk the structure of a message and report what is beyond a limit or readable in two ways."""
    data = raw if isinstance(raw, bytes) else bytes(raw)
    tree = grow_tree(data, limits)
    trips = [Trip(limit, sentence, Place(part=place)) for limit, sentence, place in tree.trips]
    if data.count(b"\n") > limits.lines:
        trips.append(Trip(LINES, f"The message has more than {limits.lines:,} lines."))
    doubts = list(tree.doubts)
    for node in tree.nodes:
        _check_fields(node, limits, trips)
        if len(doubts) < KEPT.ambiguities:
            doubts += _doubt_node(data, node)
    doubts += _doubt_bytes(data, tree)
    return StructureReport(_unique(trips), tuple(dict.fromkeys(doubts))[: KEPT.ambiguities], tree)


def _unique(trips: list[Trip]) -> tuple[Trip, ...]:
    """Keep the first trip of each limit: the message is refused for one, a thousand repeat it."""
    first: dict[str, Trip] = {}
    for trip in trips:
        first.setdefault(trip.limit, trip)
    return tuple(first.values())


def _check_fields(node: Node, limits: Limits, trips: list[Trip]) -> None:
    for name, value in node.fields:
        if name in _STRUCTURED:
            if name in _ADDRESS_HEADERS and (
                min(value.count(b"@"), value.count(b",") + 1) > limits.addresses
                or value.count(b",") > 4 * limits.addresses
            ):
                _trip(node, trips, "addresses", f"A header names more than {limits.addresses:,} addresses.")
            if value.count(b"(") > limits.comment_depth and nests_deeper(value, limits.comment_depth):
                _trip(node, trips, "comment_depth", "Comments in a header are nested too deep.")
            if name[:8] == b"content-" and _has_many_parameters(value, limits.parameters):
                _trip(node, trips, "parameters", f"A header has more than {limits.parameters} parameters.")
        if len(value) > limits.header:
            most = limits.long_header if name.strip() in LONG_HEADERS else limits.header
            if len(value) > most:
                _trip(node, trips, "header", "A header is longer than any honest message has.")
    if len(node.media.boundary) > limits.boundary:
        _trip(node, trips, "boundary", f"A boundary is longer than {limits.boundary:,} bytes.")


def _has_many_parameters(value: bytes, most: int) -> bool:
    return value.count(b"=") > most and len(read_parameters(value, most + 1)) > most


def _trip(node: Node, trips: list[Trip], limit: str, sentence: str) -> None:
    trips.append(Trip(limit, sentence, Place(part=node.path) if node.path else area("headers")))


def _doubt_node(data: bytes, node: Node) -> list[str]:
    """Look at the bytes of one header block, and at what lies before the first part of a multipart."""
    doubts: list[str] = []
    block = data[node.start : min(node.body, node.start + 1_048_576)]
    where = f"part {node.path}" if node.path else "the message itself"
    if b"\r" in block:
        pairs = block.count(b"\r\n")
        if block.count(b"\r") != pairs:
            doubts.append(f"A carriage return stands alone among the headers ({where})")
        if block.count(b"\n") != pairs:
            doubts.append(f"Line ends of two kinds are mixed among the headers ({where})")
    if b"\0" in block:
        doubts.append(f"A NUL byte stands among the headers ({where})")
    if _has_doubtful_blank(block, node.media.encoding):
        doubts.append(f"A line of white space alone may end the headers ({where})")
    if not block.strip():
        headless = "A part has no headers, and not every reader takes it for one"
        doubts.append(
            f"{headless} ({where})" if node.path else "The message begins with an empty line or has no headers"
        )
    elif block[:1] in (b" ", b"\t"):
        doubts.append(f"The first header line is folded ({where})")
    if _OTHER_BREAKS.search(block) and (node.body >= len(data) or _has_odd_break(node.fields)):
        doubts.append(f"A header has a line break of another kind ({where})")
    if node.preamble_end > node.body and _hides_part(data, node.body, node.preamble_end):
        doubts.append(f"A part hides before the first boundary ({where})")
    if node.epilogue >= 0 and _hides_part(data, node.epilogue, node.end):
        doubts.append(f"A part hides after the last boundary ({where})")
    return doubts


def _hides_part(data: bytes, start: int, end: int) -> bool:
    """Tell whether text outside the parts looks like a part; as much of it as nobody writes is doubtful in itself."""
    return end - start > _ASIDE or _HIDDEN_PART.search(data, start, end) is not None


def _has_doubtful_blank(block: bytes, encoding: bytes) -> bool:
    """Tell whether a reader who takes a line of white space for the end of the headers sees another message.

    Reports folded into a header often have such lines, so one counts only where the line after it is not folded
    and MIME headers follow, or where a transfer encoding was named before it.
    """
    last = max((field.start() for field in _HIDDEN_PART.finditer(block)), default=-1)
    encoded = _ENCODING_FIELD.search(block) if encoding in {b"base64", b"quoted-printable"} else None
    for blank in _BLANK_LINE.finditer(block):
        after = blank.end()
        if block[after : after + 1] not in b" \t" and last >= after - 1:
            return True
        if encoded and encoded.end() <= blank.start():
            return True
    return False


def _has_odd_break(fields: list[Field]) -> bool:
    return any(name[:8] == b"content-" and _OTHER_BREAKS.search(value) for name, value in fields)


def _doubt_bytes(data: bytes, tree: Tree) -> list[str]:
    """Look for bytes that no mail has; only multiparts depend on line ends in the body."""
    doubts: list[str] = []
    if data[:4].startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        doubts.append("The message begins with a byte order mark")
    if not tree.nodes or not tree.nodes[0].media.is_multipart:
        return doubts
    if data.find(b"\r--") >= 0:
        doubts.append("A carriage return alone stands before what may be a boundary")
    return doubts
