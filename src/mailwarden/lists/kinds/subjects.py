"""Subjects: a text that the subject contains, ignoring case, or an RE2 pattern.

Security: patterns come from tenants, so only RE2 runs them: its time is linear and its memory bounded.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, cast
from unicodedata import normalize

import re2

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds.kind import Kind, fold

MAX_SUBJECT = 1_000
MAX_PROGRAM = 2_000  # instructions of RE2: the time a pattern takes at worst is their number times the subject's length
_PATTERN_MEMORY = 1 << 20
_GATE_MEMORY = 16 << 20
_GATE_SIZE = 100
_LITERAL, _PATTERN = 10_000, 0
# A pattern that matches all of these unrelated texts matches nearly everything.
_UNRELATED = ("Quarterly figures", "Lunch on Monday?", "Ihre Rechnung 4711", "RE: minutes of 3 May")


class Pattern(Protocol):
    @property
    def programsize(self) -> int: ...
    def search(self, text: str) -> object | None: ...


class SubjectMatcher:
    """The compiled entries of one list: one RE2 set for all patterns, single patterns only after a match."""

    def __init__(self, entries: Iterable[str]) -> None:
        ordered = sorted(set(entries), key=lambda entry: (-subject_specificity(entry), entry))
        self._literals = [entry for entry in ordered if not entry.startswith("/")]
        patterns = [entry for entry in ordered if entry.startswith("/")]
        self._gates: list[tuple[Pattern, Sequence[tuple[str, Pattern]]]] = []
        for start in range(0, len(patterns), _GATE_SIZE):
            self._add_gate([(entry, compile_pattern(entry)) for entry in patterns[start : start + _GATE_SIZE]])

    def find(self, subject: str) -> list[str]:
        """Return the entries that match a subject, the most specific first."""
        folded = fold(subject[:MAX_SUBJECT])
        matched_entries = [literal for literal in self._literals if literal in folded]
        if self._gates:
            text = plain_subject(subject)
            for gate, patterns in self._gates:
                if gate.search(text):
                    matched_entries.extend(entry for entry, pattern in patterns if pattern.search(text))
        return matched_entries

    def _add_gate(self, patterns: Sequence[tuple[str, Pattern]]) -> None:
        """Join patterns into one that hits where any of them does; where they cannot be joined, halve them."""
        if len(patterns) == 1:
            self._gates.append((patterns[0][1], patterns))
            return
        joined = _join([entry for entry, _ in patterns])
        if joined is not None:
            self._gates.append((joined, patterns))
            return
        middle = len(patterns) // 2
        self._add_gate(patterns[:middle])
        self._add_gate(patterns[middle:])


def read_subject(text: str) -> str:
    """Return a pattern as it is, or a literal folded; an entry that begins with a slash is always a pattern."""
    if text.startswith("/"):
        compile_pattern(text)
        return text
    literal = fold(text)
    if not literal or literal.startswith("/"):
        raise InvalidEntry("The text holds nothing that can be seen, or becomes a pattern when folded.")
    return literal


def compile_pattern(entry: str) -> Pattern:
    """Compile `/RE2/` or `/RE2/i`, or raise InvalidEntry."""
    body, ignore_case = _take_apart(entry)
    options = _options(_PATTERN_MEMORY)
    options.case_sensitive = not ignore_case
    try:
        pattern = cast("Pattern", re2.compile(body, options))
    except re2.error as error:
        raise InvalidEntry(f"RE2 does not take the pattern: {_sentence(error)}.") from None
    if pattern.programsize > MAX_PROGRAM:
        raise InvalidEntry("The pattern is too large: repeat less, or name fewer classes of characters.")
    return pattern


def plain_subject(subject: str) -> str:
    """Return a subject as patterns see it: on one line, in NFC, without halves of surrogate pairs."""
    text = " ".join(subject[:MAX_SUBJECT].split())
    return text if text.isascii() else normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def check_subject_breadth(entry: str, *, lets_through: bool) -> None:
    del lets_through
    if not entry.startswith("/"):
        if len(entry) < 2:
            raise EntryTooBroad("One character is in most subjects: give more of the text.")
        return
    pattern = compile_pattern(entry)
    if all(pattern.search(text) for text in _UNRELATED):
        raise EntryTooBroad("The pattern matches nearly every subject.")


def subject_specificity(entry: str) -> int:
    """Order the longer literal first and patterns last, because the breadth of a pattern is unknown."""
    return _PATTERN if entry.startswith("/") else _LITERAL + len(entry)


def _take_apart(entry: str) -> tuple[str, bool]:
    body, slash, flags = entry[1:].rpartition("/")
    if not slash or not body or flags not in {"", "i"}:
        raise InvalidEntry("A pattern is written `/pattern/` or `/pattern/i`; a text must not begin with a slash.")
    return body, flags == "i"


def _join(entries: Sequence[str]) -> Pattern | None:
    bodies = [_take_apart(entry) for entry in entries]
    if any("\\Q" in body for body, _ in bodies):  # a quotation without an end would swallow the next pattern
        return None
    whole = "|".join(f"(?i:{body})" if ignore_case else f"(?:{body})" for body, ignore_case in bodies)
    try:
        return cast("Pattern", re2.compile(whole, _options(_GATE_MEMORY)))
    except re2.error:
        return None


def _options(memory: int) -> "re2.Options":
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    options.never_capture = True
    return options


def _sentence(error: Exception) -> str:
    reason = error.args[0] if error.args else b""
    return (reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason))[:200]


SUBJECT = Kind(
    name="subject",
    form="A text in the subject, ignoring case and spacing; or `/RE2/i`; or `/RE2/`, which is case-sensitive.",
    examples=(
        ("You have won", "you have won"),
        ("  Final   NOTICE ", "final notice"),
        ("/invoice [0-9]{6,}/i", "/invoice [0-9]{6,}/i"),
        ("/^URGENT: wire/", "/^URGENT: wire/"),
    ),
    read=read_subject,
    specificity=subject_specificity,
    check_breadth=check_subject_breadth,
    matches_text=True,
)
