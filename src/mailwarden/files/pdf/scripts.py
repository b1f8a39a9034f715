"""Reports what the scripts of a PDF do when it is opened.

Forms bring libraries of JavaScript functions. A script that only defines functions runs nothing; a script that calls
functions, opens links or hides its code is reported.

Security: hostile bytes; scripts are bounded by the message's limits, every pattern is linear, and it never raises.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set

from msgspec import Struct

from mailwarden.files.pdf.objects import (
    PdfObjects,
    read_reference,
    skip_blank,
)

_ROOT = re.compile(rb"/JavaScript(?![A-Za-z0-9])")
_REFERENCE = re.compile(rb"\b(\d{1,10})\s{1,9}\d{1,5}\s{1,9}R\b")
_HOLDS = re.compile(rb"/(?:Kids|Names|JS)\b")

_UNCALLED = re.compile(  # strings and comments; of one that goes over lines, its beginning
    r"\"(?:[^\"\\\n]|\\.){0,500}\"|'(?:[^'\\\n]|\\.){0,500}'|//[^\n]{0,2000}|/\*"
)
_MAX_COMMENT = 20_000  # not inspection: a longer comment is read as a part of the script
_QUOTED = re.compile(r"\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|//[^\n]{0,500}")
_WORD = re.compile(r"[A-Za-z_$][\w$]{1,60}")
_DEFINED = re.compile(r"\b(?:var|function)\s{1,9}([A-Za-z_$][\w$]{1,60})")
_FUNCTION = re.compile(r"\bfunction\b\s{0,9}[\w$]{0,60}\s{0,9}\([^()]{0,2000}\)")
_HEAD = "\0"  # stands for the head of a function, whose body runs only when it is called
_CALLED_AT_ONCE = re.compile(r"\}\s{0,9}\)?\s{0,9}\(")
_CALL = re.compile(r"([A-Za-z_$][\w$]{0,60})\s{0,9}\(")
_BRACES = re.compile(r"([{}])")
_GRAMMAR = frozenset({"if", "for", "while", "switch", "catch", "with", "return", "typeof", "function"})
# The statements of scripts that only print, turn to a page or fill in today's date.
_HARMLESS = frozenset(
    (  # noqa: SIM905 - so many quoted words would fill the screen
        "this doc print true false null var new if else zoom zoomType fit fitW fitH fitV pageNum layout pageLayout "
        "getPrintParams printParams interactive constants interactionLevel automatic silent full bUI bSilent "
        "bShrinkToFit bPrintAsImage nStart nEnd getField value display hidden visible util printd scand Date "
        "calculateNow calculate resetForm delay dirty setFocus viewState numPages"
    ).split()
)
# Wherever they stand in a script of the document, also inside its functions.
_ACTS = (
    ("it opens an address", re.compile(r"\b(?:launchURL|getURL)\b|\bSOAP\s{0,9}\.|\bNet\s{0,9}\.\s{0,9}HTTP\b")),
    ("it opens or saves a file", re.compile(r"\b(?:exportDataObject|openDataObject|openDoc)\b")),
    (
        "it calls what readers were broken with",
        re.compile(r"\bCollab\s{0,9}\.\s{0,9}(?:getIcon|collectEmailInfo)|\b(?:newPlayer|printSeps|customDictionaryOpen)\b"),
    ),
    ("it hides what it calls", re.compile(r"\[\s{0,9}(?:\"[^\"\n]{0,99}\"|'[^'\n]{0,99}')\s{0,9}\+")),
)  # fmt: skip
_UNPACKING = (
    re.compile(r"\beval\b|\bnew\s{1,9}Function\b"),
    re.compile(r"\bunescape\b"),
    re.compile(r"\bfromCharCode\b"),
)
_SENDING = frozenset({"submitForm", "mailDoc", "mailForm", "mailMsg", "eval"})


class DocumentScripts(Struct, frozen=True):
    """The effects of the scripts: `runs` if one does more than define, print or fill in; `acts` is how one attacks."""

    runs: bool = False
    acts: str = ""


def look_at_scripts(objects: PdfObjects, texts: Sequence[bytes], others: Iterable[str] = ()) -> DocumentScripts:
    """Read the scripts that run when the document is opened, in its sources and the `others` that pdfium lists."""
    runs, acts = False, ""
    room = objects.limits.pdf_script
    for script in dict.fromkeys((*_scripts(objects, texts), *others)):
        room -= len(script)
        if room < 0:
            objects.coverage.beyond("pdf_script", objects.place)
            break
        calls = calls_at_once(script)
        runs = runs or _runs(script, calls)
        acts = acts or how_it_acts(script, calls)
    return DocumentScripts(runs=runs or bool(acts), acts=acts)


def is_harmless(script: str) -> bool:
    """Return whether a script only prints, turns pages or fills in fields."""
    words = _QUOTED.sub(" ", script)
    return bool(script) and set(_WORD.findall(words)) <= _HARMLESS | set(_DEFINED.findall(words))


def how_it_acts(script: str, calls: Set[str]) -> str:
    """Return how a script contacts a server or hides its code, or ""."""
    for how, pattern in _ACTS:
        if pattern.search(script):
            return how
    if sum(bool(pattern.search(script)) for pattern in _UNPACKING) > 1:
        return "it runs what it has unpacked"
    if not _SENDING.isdisjoint(calls):
        return "it sends or runs something at once"
    return ""


def _runs(script: str, calls: Set[str]) -> bool:
    """Return whether a script does more than define; one that cannot be read may."""
    return not script or bool(calls - _HARMLESS)


def calls_at_once(script: str) -> set[str]:
    """Return the names of functions that a script calls when it is loaded, outside functions."""
    code = _FUNCTION.sub(_HEAD, _without_texts(script.replace(_HEAD, "")))
    if _HEAD not in code or _CALLED_AT_ONCE.search(code):
        return set(_CALL.findall(code)) - _GRAMMAR
    shown: list[str] = []
    bodies: list[bool] = []  # of the braces that are open, which belong to functions
    inside = 0  # so many functions: to count them anew for each piece would take a nest of braces for ever
    before = ""
    for piece in _BRACES.split(code):
        if piece == "{":
            bodies.append(before.rstrip().endswith(_HEAD))
            inside += bodies[-1]
        elif piece == "}":
            inside -= bodies.pop() if bodies else 0
        elif not inside:
            shown.append(piece)
        before = piece
    return set(_CALL.findall(" ".join(shown))) - _GRAMMAR


def _without_texts(script: str) -> str:
    """Return a script with each string and comment emptied; a string or comment without an end stays."""
    shown: list[str] = []
    taken = position = end = 0
    while match := _UNCALLED.search(script, position):
        position = match.end()
        if match[0] == "/*":
            if 0 <= end < position:  # looked for once, however many begin before it
                end = script.find("*/", position)
            if not 0 <= end - position <= _MAX_COMMENT:
                continue
            position = end + 2
        shown += (script[taken : match.start()], '""')
        taken = position
    return "".join((*shown, script[taken:]))


def _scripts(objects: PdfObjects, texts: Sequence[bytes]) -> Iterator[str]:
    """Walk the tree of the document's scripts; nodes beyond the limit count as a script that cannot be read."""
    waiting: list[bytes] = []
    roots = ((text, match.end()) for text in texts for match in _ROOT.finditer(text))
    for text, end in objects.coverage.first(roots, "pdf_actions", objects.place):
        position = skip_blank(text, end)
        if number := read_reference(text, position):
            waiting.append(objects.find(number))
        elif text[position : position + 2] == b"<<":
            waiting.append(objects.dictionary(text, position))
    seen: set[bytes] = set()
    while waiting:
        node = waiting.pop()
        yield from objects.scripts(node)
        for number in _REFERENCE.findall(node):
            if number in seen:
                continue
            if len(seen) >= objects.limits.pdf_scripts:
                objects.coverage.beyond("pdf_scripts", objects.place)
                yield ""
                return
            seen.add(number)
            item = objects.find(number)
            if _HOLDS.search(item):
                waiting.append(item)
