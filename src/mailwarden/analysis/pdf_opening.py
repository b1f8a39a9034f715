"""What a PDF does as soon as it is opened: the actions that its catalogue or a page names.

Security: hostile bytes; actions are bounded by the message's limits, every pattern is linear, and it never raises.
"""

import re
from collections.abc import Iterator, Sequence

from mailwarden.analysis.pdf_objects import PdfObjects
from mailwarden.analysis.pdf_scripts import is_harmless
from mailwarden.analysis.pdf_syntax import read_reference, skip_blank

_OPENING = re.compile(rb"/(OpenAction|AA)(?![A-Za-z0-9])")
_PAGE_OPENS = re.compile(rb"/O(?![A-Za-z0-9])")  # of a page's own actions, O is the one that happens when it is shown
_KIND = re.compile(rb"/S\s{0,4}/([A-Za-z]{2,20})")
_NEXT = re.compile(rb"/Next(?![A-Za-z0-9])[\s\[]{0,9}")
_REFERENCES = re.compile(rb"\b\d{1,10}\s{1,9}\d{1,5}\s{1,9}R\b")


def opening_actions(objects: PdfObjects, texts: Sequence[bytes]) -> frozenset[str]:
    """Return the kinds of what happens at opening; a script that only prints or fills in is `PrintScript`."""
    kinds: set[str] = set()
    seen: set[bytes] = set()
    found = (action for text in texts for action in _actions(text, objects))
    for action in objects.coverage.first(found, "pdf_actions", objects.place):
        kinds.update(_kinds_of(action, objects, seen))
    return frozenset(kinds)


def _actions(text: bytes, objects: PdfObjects) -> Iterator[bytes]:
    """Yield the actions that a source runs at opening."""
    for match in _OPENING.finditer(text):
        value = _value(text, match.end(), objects)
        if match[1] == b"OpenAction":
            yield value
        elif opens := _PAGE_OPENS.search(value):
            yield _value(value, opens.end(), objects)


def _value(text: bytes, position: int, objects: PdfObjects) -> bytes:
    """Return the dictionary that stands there, or the object that is named there."""
    position = skip_blank(text, position)
    if number := read_reference(text, position):
        return objects.find(number)
    return objects.dictionary(text, position) if text[position : position + 2] == b"<<" else b""


def _kinds_of(action: bytes, objects: PdfObjects, seen: set[bytes]) -> Iterator[str]:
    """Yield the kind of an action and of those that follow it."""
    waiting = [action]
    while waiting:
        action = waiting.pop()
        for kind in dict.fromkeys(_KIND.findall(action)):
            scripts = list(objects.scripts(action)) if kind == b"JavaScript" else []
            yield "PrintScript" if scripts and all(map(is_harmless, scripts)) else kind.decode("ascii")
        for following in _NEXT.finditer(action):
            end = action.find(b"]", following.end()) if b"[" in following[0] else following.end() + 30
            for reference in _REFERENCES.findall(action[following.end() : end if end >= 0 else None]):
                number = read_reference(reference, 0)
                if number not in seen:
                    seen.add(number)
                    waiting.append(objects.find(number))
                if b"[" not in following[0]:
                    break
