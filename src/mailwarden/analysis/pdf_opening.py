"""What a PDF does as soon as it is opened: the actions that its catalogue or its first page names.

Security: hostile bytes; every search is bounded, every pattern is linear, and it never raises.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mailwarden.analysis.pdf_objects import PdfObjects, dictionary_at
from mailwarden.analysis.pdf_scripts import is_harmless

_MAX_ACTIONS = 20
_MAX_NEXT = 10  # actions that follow one another

# Of a page's own actions, O is the one that happens when it is shown.
_OPENING = re.compile(rb"/(?:OpenAction|AA\s{0,4}<<\s{0,4}/O)\s{0,4}(?:(<<)|(\d{1,9})\s{1,4}\d{1,5}\s{1,4}R\b)")
_KIND = re.compile(rb"/S\s{0,4}/([A-Za-z]{2,20})")
_NEXT = re.compile(rb"/Next\s{0,4}\[?\s{0,4}(\d{1,9})\s{1,4}\d{1,5}\s{1,4}R\b")


def opening_actions(content: bytes, packed: Sequence[bytes]) -> frozenset[str]:
    """Return the kinds of what happens at opening; a script that only prints or fills in is `PrintScript`."""
    return frozenset(_kinds(PdfObjects(content, packed)))


def _kinds(objects: PdfObjects) -> Iterator[str]:
    seen: set[bytes] = set()
    found = ((text, match) for text in objects.texts for match in _OPENING.finditer(text))
    for text, match in islice(found, _MAX_ACTIONS):
        if match[2] in seen:
            continue
        seen.update([match[2]] if match[2] else [])
        yield from _kinds_of(dictionary_at(text, match.start(1)) if match[1] else objects.find(match[2]), objects)


def _kinds_of(action: bytes, objects: PdfObjects) -> Iterator[str]:
    """Yield the kind of an action and of those that follow it."""
    seen: set[bytes] = set()
    for _ in range(_MAX_NEXT):
        for kind in dict.fromkeys(_KIND.findall(action)):
            scripts = list(objects.scripts(action)) if kind == b"JavaScript" else []
            yield "PrintScript" if scripts and all(map(is_harmless, scripts)) else kind.decode("ascii")
        following = _NEXT.search(action)
        if following is None or following[1] in seen:
            return
        seen.add(following[1])
        action = objects.find(following[1])
