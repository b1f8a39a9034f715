"""What a PDF does as soon as it is opened: the action that its catalogue or its first page names.

Security: hostile bytes; every search is bounded, every pattern is linear, and it never raises.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

_MAX_ACTIONS = 20
_MAX_ACTION = 16_384
_MAX_SCRIPT = 256 * 1024
_MAX_MENTIONS = 5_000  # of a number in the file, until it is given up to find its object

# Of a page's own actions, O is the one that happens when it is shown.
_OPENING = re.compile(rb"/(?:OpenAction|AA\s{0,4}<<\s{0,4}/O)\s{0,4}(?:(<<)|(\d{1,9})\s{1,4}\d{1,5}\s{1,4}R\b)")
_BEGINS = re.compile(rb"\s{1,4}\d{1,5}\s{1,4}obj\b")
_KIND = re.compile(rb"/S\s{0,4}/([A-Za-z]{2,20})")
_SCRIPT = re.compile(rb"/JS\s{0,4}(?:(\()|<([0-9a-fA-F\s]{2,65536}+)>|(\d{1,9})\s{1,4}\d{1,5}\s{1,4}R\b)")
_MARK = re.compile(rb"\\.|[()]|<<|>>", re.DOTALL)
_STREAM = re.compile(rb"\bstream\r?\n")
_NUMBERS = re.compile(rb"\s{0,9}(?:\d{1,9}\s{1,9}\d{1,9}\s{1,9}){1,500}+")
_QUOTED = re.compile(r"\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|//[^\n]{0,500}")
_WORD = re.compile(r"[A-Za-z_$][\w$]{1,60}")
_DEFINED = re.compile(r"\bvar\s{1,9}([A-Za-z_$][\w$]{1,60})")
# What scripts are made of that print, turn to a page or fill in today's date, and nothing else.
_HARMLESS = frozenset(
    (  # noqa: SIM905 - so many quoted words would fill the screen
        "this doc print true false null var new if else zoom zoomType fit fitW fitH fitV pageNum layout pageLayout "
        "getPrintParams printParams interactive constants interactionLevel automatic silent full bUI bSilent "
        "bShrinkToFit bPrintAsImage nStart nEnd getField value display hidden visible util printd scand Date "
        "calculateNow calculate resetForm delay dirty setFocus viewState numPages"
    ).split()
)


def opening_actions(content: bytes, packed: Sequence[bytes]) -> frozenset[str]:
    """Return the kinds of what happens at opening; a script that only prints or fills in is `PrintScript`."""
    return frozenset(_kinds(content, packed))


def _kinds(content: bytes, packed: Sequence[bytes]) -> Iterator[str]:
    seen: set[bytes] = set()
    found = ((text, match) for text in (content, *packed) for match in _OPENING.finditer(text))
    for text, match in islice(found, _MAX_ACTIONS):
        if match[2] in seen:
            continue
        seen.update([match[2]] if match[2] else [])
        action = _dictionary(text, match.start(1)) if match[1] else _find_object(match[2], content, packed)
        if kind := _KIND.search(action):
            is_harmless = kind[1] == b"JavaScript" and _is_harmless(action, content, packed)
            yield "PrintScript" if is_harmless else kind[1].decode("ascii")


def _dictionary(text: bytes, start: int) -> bytes:
    """Return what stands between the brackets that open there, strings left alone."""
    depth = strings = 0
    for mark in _MARK.finditer(text, start, start + _MAX_ACTION):
        if mark[0] in (b"(", b")"):
            strings = max(strings + (1 if mark[0] == b"(" else -1), 0)
        elif not strings and mark[0] in (b"<<", b">>"):
            depth += 1 if mark[0] == b"<<" else -1
            if depth == 0:
                return text[start : mark.end()]
    return text[start : start + _MAX_ACTION]


def _find_object(number: bytes, content: bytes, packed: Sequence[bytes]) -> bytes:
    """Return an object by its number, from the file itself or from a stream of objects."""
    if start := _find_start(number, content):
        end = content.find(b"endobj", start, start + _MAX_SCRIPT)
        return content[start : end if end >= 0 else start + _MAX_ACTION]
    for text in packed:
        if head := _NUMBERS.match(text):
            pairs = head[0].split()
            for name, offset in zip(pairs[::2], pairs[1::2], strict=False):
                if name == number:
                    start = head.end() + int(offset)
                    return text[start : start + _MAX_ACTION]
    return b""


def _find_start(number: bytes, content: bytes) -> int:
    """Return where the object of a number begins, or 0: as programs write it, then as readers take it too."""
    if (place := content.find(b"\n" + number + b" 0 obj")) >= 0:
        return place + len(number) + 7
    place = content.find(number)
    for _ in range(_MAX_MENTIONS):
        if place < 0:
            break
        match = _BEGINS.match(content, place + len(number))
        if match and not content[place - 1 : place].isdigit():
            return match.end()
        place = content.find(number, place + 1)
    return 0


def _is_harmless(action: bytes, content: bytes, packed: Sequence[bytes]) -> bool:
    script = _script(action, content, packed)
    words = _QUOTED.sub(" ", script)
    return bool(script) and set(_WORD.findall(words)) <= _HARMLESS | set(_DEFINED.findall(words))


def _script(action: bytes, content: bytes, packed: Sequence[bytes]) -> str:
    match = _SCRIPT.search(action)
    if match is None:
        return ""
    if match[1]:
        data = action[match.end() : action.rfind(b")")].replace(b"\\", b"")
    elif match[2]:
        digits = b"".join(match[2].split())
        data = bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii"))
    else:
        data = _unpack(_find_object(match[3], content, packed))
    return data.decode("utf-16" if data.startswith((b"\xfe\xff", b"\xff\xfe")) else "latin-1", "replace")


def _unpack(item: bytes) -> bytes:
    """Return the content of a stream; one that cannot be unpacked is returned as it is, and reads as no words known."""
    start = _STREAM.search(item)
    if start is None:
        return item
    data = item[start.end() :]
    try:
        return zlib.decompressobj().decompress(data, _MAX_SCRIPT) if b"FlateDecode" in item[: start.start()] else data
    except zlib.error:
        return data
