"""The MIME tree of raw bytes, and the check that rejects structural bombs before any parser or engine reads them.

Security: the first code that touches hostile bytes; one iterative pass over the boundary lines, every loop bounded by a
limit. The tree stops growing at the first limit reached. It never raises.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from mmap import mmap

from msgspec import Struct

from mailwarden.message.headers import LONG_HEADERS, Field, nests_deeper, read_fields, read_parameters
from mailwarden.message.limits import KEPT, LIMITS, Limits
from mailwarden.message.media import Media, read_media
from mailwarden.model.place import WHOLE_MESSAGE, Place, area

NEAR_MISSES = 10_000  # lines compared with the open boundaries; more of them are a doubt in themselves


_ADDRESS_HEADERS = frozenset({b"from", b"to", b"cc", b"bcc", b"reply-to", b"sender"})
_STRUCTURED = _ADDRESS_HEADERS | {b"received", b"content-type", b"content-disposition", b"content-transfer-encoding",
                                  b"mime-version", b"date", b"message-id", b"references", b"in-reply-to"}  # fmt: skip
_ASIDE = 65_536
_BLOCK = 65_536  # bytes that are searched for a dash together
_BLANK_LINE = re.compile(rb"\n[ \t]+\r?(?:\n|\Z)")
_HIDDEN_PART = re.compile(rb"(?:\A|\n)content-(?:type|transfer-encoding|disposition)[ \t]*:", re.IGNORECASE)
_ENCODING_FIELD = re.compile(rb"(?:\A|\n)content-transfer-encoding[ \t]*:", re.IGNORECASE)
_OTHER_BREAKS = re.compile(rb"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")
LINES = "lines"  # beyond this limit no engine is asked: one may need gigabytes for such a message


@dataclass(slots=True)
class Node:
    """One entity: its path, its header fields and the position of its body."""

    path: str
    depth: int
    start: int
    body: int
    end: int
    fields: list[Field]
    media: Media
    level: int = 0  # the number of enclosing multiparts in this tree
    children: int = 0
    preamble_end: int = -1
    epilogue: int = -1


@dataclass(slots=True)
class Tree:
    nodes: list[Node] = field(default_factory=list)
    trips: list[tuple[str, str, str]] = field(default_factory=list)  # limit, sentence, place
    doubts: list[str] = field(default_factory=list)  # sentences: readers may disagree
    headers: int = 0


class Grower:
    """Grows the tree of one run of bytes; `path` and `depth` continue those of an enclosing entity."""

    def __init__(self, raw: bytes, limits: Limits = LIMITS, path: str = "", depth: int = 0, parts: int = 0) -> None:
        self.raw = raw
        self.limits = limits
        self.tree = Tree()
        self._root = path
        self._depth = depth
        self._parts = parts
        self._stack: list[Node] = []  # the multiparts that are open
        self._active: dict[bytes, int] = {}  # their boundaries, with their place in the stack
        self._prefixes: tuple[bytes, ...] = ()
        self._lowered: set[bytes] = set()
        self._closed: set[bytes] = set()
        self._misses = 0
        self._line_ends: set[bool] = set()
        self._open: list[Node] = []
        self._stopped = False
        self._crlf = raw.find(b"\r\n", 0, 4_096) >= 0
        self._searched: dict[bytes, tuple[int, int, int]] = {}
        self._candidates = _candidates(raw, limits.boundary_candidates + 1)
        self._index = 0

    def grow(self) -> Tree:
        if len(self._candidates) > self.limits.boundary_candidates:
            self._trip(
                "boundary_candidates",
                "The message has more lines that look like boundaries than a reader can be asked to check.",
                "",
            )
            self._candidates.pop()
        self._enter(0, self._root or "", self._depth)
        self._read_candidates()
        self._finish()
        return self.tree

    def _read_candidates(self) -> None:
        """Process the boundary candidates; the common case, a line that is no boundary, is fast."""
        candidates, raw = self._candidates, self.raw
        reach = self.limits.boundary + 80
        while not self._stopped and self._stack and self._index < len(candidates):
            position = candidates[self._index]
            self._index += 1
            end = raw.find(b"\n", position + 3, position + reach)
            text = raw[position + 3 : end if end >= 0 else position + reach].rstrip(b" \t\r")
            if text in self._active or text.endswith(b"--"):
                self._read_boundary(text, position, end + 1 if end >= 0 else min(position + reach, len(raw)))
            elif self._misses <= NEAR_MISSES:
                self._look_at_near_miss(text)

    def _trip(self, limit: str, sentence: str, place: str) -> None:
        self.tree.trips.append((limit, sentence, place))
        self._stopped = True

    def _doubt(self, sentence: str) -> None:
        if len(self.tree.doubts) < KEPT.ambiguities:
            self.tree.doubts.append(sentence)

    def _line(self, position: int) -> tuple[bytes, int]:
        """Return the text after the dashes of a boundary candidate, and where the next line begins."""
        start = position + 3
        end = self.raw.find(b"\n", start, start + self.limits.boundary + 80)
        if end < 0:
            end = min(len(self.raw), start + self.limits.boundary + 80)
        return self.raw[start:end].rstrip(b" \t\r"), end + 1

    def _match(self, text: bytes) -> tuple[int, bool]:
        """Return the open multipart of a boundary line, or -1, and whether the line closes it."""
        level = self._active.get(text, -1)
        if level >= 0:
            return level, False
        if text.endswith(b"--"):
            return self._active.get(text[:-2], -1), True
        return -1, False

    def _read_boundary(self, text: bytes, position: int, after: int) -> None:
        level, closes = self._match(text)
        if level < 0:
            self._look_at_near_miss(text)
            return
        node = self._stack[level]
        self._line_ends.add(self.raw[position - 1 : position] == b"\r")
        self._close_above(level, position)
        if node.preamble_end < 0:
            node.preamble_end = position
        if closes:
            self._closed.add(node.media.boundary)
            del self._stack[level]
            self._renew_active()
            node.epilogue = min(after, len(self.raw))
            return
        node.children += 1
        prefix = f"{node.path}." if node.path else ""
        self._enter(after, f"{prefix}{node.children}", node.depth + 1)

    def _look_at_near_miss(self, text: bytes) -> None:
        self._misses += 1
        if self._misses > NEAR_MISSES:
            if self._misses == NEAR_MISSES + 1:
                self._doubt("More lines look like boundaries than were compared with them.")
        elif text in self._closed:
            self._doubt("A part follows after its multipart was closed.")
        elif text.startswith(self._prefixes):
            self._doubt("A line begins like a boundary and goes on with other text.")
        elif text.lower().removesuffix(b"--") in self._lowered:
            self._doubt("A line differs from a boundary in upper and lower case only.")

    def _close_above(self, level: int, position: int) -> None:
        """End every entity that lies inside the multipart at `level`, whether it was closed or not."""
        end = position - 1 if position and self.raw[position - 1 : position] == b"\r" else position
        while self._open and self._open[-1].level > level:
            node = self._open.pop()
            node.end = max(end, node.body)
        while len(self._stack) > level + 1:
            self._doubt_unclosed(self._stack.pop())
            self._renew_active()

    def _renew_active(self) -> None:
        self._active = {node.media.boundary: place for place, node in enumerate(self._stack)}
        self._prefixes = tuple(self._active)
        self._lowered = {boundary.lower() for boundary in self._active}

    def _doubt_unclosed(self, node: Node) -> None:
        if node.children == 0:
            self._doubt(f"The multipart at {node.path or 'the top'} has no part: its boundary never appears.")
        else:
            self._doubt(f"The multipart at {node.path or 'the top'} is never closed.")

    def _enter(self, start: int, path: str, depth: int) -> None:
        """Parse the header block at `start`, and descend into enclosed messages."""
        inside = False  # a message that is no multipart has one part of its own, numbered 1
        while not self._stopped:
            if depth > self.limits.depth:
                self._trip("depth", "Multiparts and messages are nested deeper than any honest message.", path)
                return
            node = self._read_entity(start, path, depth)
            if node is None:
                return
            self.tree.nodes.append(node)
            self._open.append(node)
            if node.media.is_multipart and node.media.boundary:
                if node.media.boundary in self._active:
                    self._doubt(f"The multipart at {path or 'the top'} uses the boundary of one that encloses it.")
                self._stack.append(node)
                self._renew_active()
                return
            if inside:
                node.path = path = f"{path}.1" if path else "1"
            if not node.media.is_plain_message:
                return
            start, depth, inside = node.body, depth + 1, True

    def _read_entity(self, start: int, path: str, depth: int) -> Node | None:
        if len(self.tree.nodes) + self._parts >= self.limits.parts:
            self._trip("parts", f"The message has more than {self.limits.parts:,} parts.", path)
            return None
        body = self._header_end(start)
        ends_early = self._next_delimiter_before(body)
        block_end = body if ends_early < 0 else ends_early + 1
        if block_end - start > self.limits.header_block:
            self._trip("header_block", "A header block is larger than any honest message has.", path)
            block_end = start + self.limits.header_block
        block = self.raw[start:block_end]
        lines = block.count(b"\n")
        if lines > self.limits.headers and block.count(b"\n ") + block.count(b"\n\t") + self.limits.headers < lines:
            self._trip("headers", f"A header block has more than {self.limits.headers:,} headers.", path)
            block = block[: self.limits.header]
        fields = read_fields(block)
        self.tree.headers += len(fields)
        if self.tree.headers > self.limits.headers_in_all:
            self._trip("headers_in_all", "The parts of the message have too many headers together.", path)
        media = read_media(fields, self.limits)
        for doubt in media.doubts:
            self._doubt(f"{doubt} ({'part ' + path if path else 'the message itself'})")
        if ends_early >= 0:
            body = block_end
        return Node(path, depth, start, body, len(self.raw), fields, media, level=len(self._stack))

    def _next_delimiter_before(self, body: int) -> int:
        """Return where an open boundary cuts a header block short, or -1."""
        while self._index < len(self._candidates) and self._candidates[self._index] < body - 1:
            position = self._candidates[self._index]
            if self._stack and self._match(self._line(position)[0])[0] >= 0:
                return position
            self._index += 1
        return -1

    def _header_end(self, start: int) -> int:
        """Return where the body begins: after the next empty line, searched only once."""
        raw = self.raw
        if start == 0 and raw[:1] == b"\n":
            return 1
        if start == 0 and raw[:2] == b"\r\n":
            return 2
        origin = max(start - 1, 0)
        usual, rare = (b"\n\r\n", b"\n\n") if self._crlf else (b"\n\n", b"\n\r\n")
        end = min(start + self.limits.header_block + 4, len(raw))  # beyond it the limit has tripped anyway
        first = self._find_once(usual, origin, end)
        other = self._find_once(rare, origin, end if first < 0 else first + 2)
        if other >= 0 and (first < 0 or other < first):
            return other + len(rare)
        return first + len(usual) if first >= 0 else end

    def _find_once(self, needle: bytes, origin: int, end: int) -> int:
        """Find within [origin, end); no byte is searched twice while the origins rise."""
        since, until, found = self._searched.get(needle, (0, -1, -1))
        if since <= origin and (origin <= found or (found < 0 and end <= until)):
            return found if found < end else -1
        begin = origin
        if found < 0 and since <= origin < until:
            begin = max(origin, until - 2)  # the bytes up to there were searched in vain
        found = self.raw.find(needle, begin, end)
        self._searched[needle] = (origin, end, found)
        return found

    def _finish(self) -> None:
        for node in self._open:
            node.end = len(self.raw)
        if len(self._line_ends) > 1:
            self._doubt("Line ends of two kinds stand before the boundaries.")
        if not self._stopped:
            for node in self._stack:
                self._doubt_unclosed(node)
        self._open, self._stack = [], []


def grow_tree(raw: bytes, limits: Limits = LIMITS, path: str = "", depth: int = 0, parts: int = 0) -> Tree:
    return Grower(raw, limits, path, depth, parts).grow()


def _candidates(raw: bytes, most: int) -> list[int]:
    """Find the lines that begin with two dashes; the position is that of the line end before them."""
    return list(islice(_find_all(raw, b"\n--"), most))


def _find_all(raw: bytes, line: bytes) -> Iterator[int]:
    """Yield where a line end with two dashes after it stands; base64 has no dash, so most blocks are skipped."""
    for start in range(0, len(raw), _BLOCK):
        end = start + _BLOCK + len(line) - 1  # one that begins in this block may end in the next
        if raw.find(b"-", start, end) < 0:
            continue
        position = raw.find(line, start, end)
        while position >= 0:
            yield position
            position = raw.find(line, position + 1, end)


def _has_more_lines(data: bytes, most: int) -> bool:
    """Return whether there are more than `most` line ends; a stream finds them faster than a count of bytes."""
    if len(data) <= most:
        return False
    lines = BytesIO(data)
    deque(islice(lines, most), maxlen=0)
    return lines.readline().endswith(b"\n")


class Trip(Struct, frozen=True):
    """A limit that the message exceeded: its name in `Limits`, a sentence, and the place in the message."""

    limit: str
    sentence: str
    place: Place = WHOLE_MESSAGE


class StructureReport(Struct, frozen=True):
    tripped: tuple[Trip, ...] = ()
    ambiguities: tuple[str, ...] = ()
    tree: Tree | None = None  # for the parser; not sent between processes


def check_structure(raw: bytes | memoryview | mmap, limits: Limits = LIMITS) -> StructureReport:
    """Walk the structure of a message, and report exceeded limits and ambiguities."""
    data = raw if isinstance(raw, bytes) else bytes(raw)
    tree = grow_tree(data, limits)
    trips = [Trip(limit, sentence, Place(part=place)) for limit, sentence, place in tree.trips]
    if _has_more_lines(data, limits.lines):
        trips.append(Trip(LINES, f"The message has more than {limits.lines:,} lines."))
    doubts = list(tree.doubts)
    for node in tree.nodes:
        _check_fields(node, limits, trips)
        if len(doubts) < KEPT.ambiguities:
            doubts += _doubt_node(data, node)
    doubts += _doubt_bytes(data, tree)
    return StructureReport(_unique(trips), tuple(dict.fromkeys(doubts))[: KEPT.ambiguities], tree)


def _unique(trips: list[Trip]) -> tuple[Trip, ...]:
    """Keep the first trip of each limit: one is enough to reject the message."""
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
    """Check the bytes of one header block, and the text before the first part of a multipart."""
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
    """Return whether text outside the parts looks like a part; a very long text counts as one."""
    return end - start > _ASIDE or _HIDDEN_PART.search(data, start, end) is not None


def _has_doubtful_blank(block: bytes, encoding: bytes) -> bool:
    """Return whether a parser that ends the headers at a line of white space sees another message.

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
    """Search for bytes that no mail has; only multiparts depend on line ends in the body."""
    doubts: list[str] = []
    if data[:4].startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        doubts.append("The message begins with a byte order mark")
    if not tree.nodes or not tree.nodes[0].media.is_multipart:
        return doubts
    if next(_find_all(data, b"\r--"), None) is not None:
        doubts.append("A carriage return alone stands before what may be a boundary")
    return doubts
