"""Completes the term that a user is typing: operators, their values, and values of recent messages of the scope.

Security: the values come from hostile messages. A completion is printable text that parses as one term.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from mailwarden.errors import InvalidQuery
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.search import words
from mailwarden.search.query import MAX_CHARACTERS, OPERATORS, STATES, parse_terms, unfinished_term
from mailwarden.search.suggestions import Values, Vocabulary

MAX_SHOWN = 8
MIN_LENGTH = 2  # of the beginning of a value of messages
MEANINGS: Mapping[str, str] = {
    "from": "sender", "to": "recipient", "subject": "words of the subject", "domain": "any domain", "ip": "client IP",
    "tag": "tag", "verdict": "verdict", "decision": "decision", "is": "state", "tenant": "tenant", "ggrid": "id",
    "url": "link", "hash": "SHA-256", "campaign": "similar messages",
}  # fmt: skip
_LISTS = ("verdict", "decision", "tag")  # operators that accept several values with commas
_PARTS = re.compile(r"[@.+_-]")


class Completion(Struct, frozen=True):
    """The text of a whole term, and what it is."""

    text: str
    kind: str


class Completions(Struct, frozen=True):
    """Texts for the place of the unfinished term, which begins at `start`."""

    start: int = 0
    found: tuple[Completion, ...] = ()


def completions(text: str, vocabulary: Vocabulary, tenants: Iterable[str] = ()) -> Completions:
    """Return completions of the last term of a text, which ends where the user is typing."""
    if len(text) > MAX_CHARACTERS:
        return Completions()
    start, negated, operator, value = unfinished_term(text)
    if operator:
        proposed = _with_operator(operator, value, vocabulary, tenants)
    else:
        proposed = _without_operator(value, vocabulary)
    minus = "-" if negated else ""
    found: dict[str, Completion] = {}
    for each in proposed:
        term = minus + each.text
        if term not in found and term != text[start:] and _is_term(each):
            found[term] = Completion(term, each.kind)
        if len(found) == MAX_SHOWN:
            break
    return Completions(start, tuple(found.values()))


def _without_operator(value: str, vocabulary: Vocabulary) -> Iterator[Completion]:
    if not value:
        return
    for name, meaning in MEANINGS.items():
        if name.startswith(value.lower()):
            yield Completion(f"{name}:", meaning)
    if len(value) < MIN_LENGTH:
        return
    for word in _beginning(words.plain(value), vocabulary.words(words.EVERYWHERE))[: MAX_SHOWN // 2]:
        yield Completion(word, "word")
    for kind, values in (("sender", vocabulary.senders), ("recipient", vocabulary.recipients)):
        for each in _with_part(value, values)[:2]:
            yield Completion(each, kind)
    for domain in _with_part(value, vocabulary.domains):
        yield Completion(domain, "domain")


def _with_operator(operator: str, value: str, vocabulary: Vocabulary, tenants: Iterable[str]) -> Iterator[Completion]:
    closed: Mapping[str, Iterable[str]] = {"verdict": Verdict, "decision": Decision, "is": STATES}
    first, comma, last = value.rpartition(",") if operator in _LISTS else ("", "", value)
    if operator in closed:
        found = [each for each in closed[operator] if each.startswith(last.lower())]
    elif operator == "tenant":
        found = [name for name in tenants if words.plain(name).startswith(words.plain(value))]
    elif operator == "subject":
        found = _beginning(words.plain(last), vocabulary.words(words.SUBJECT))
    else:
        found = _with_part(last, _values(operator, vocabulary))
    for each in found:
        yield Completion(f"{operator}:{first}{comma}{_quoted(each)}", MEANINGS.get(operator, ""))


def _values(operator: str, vocabulary: Vocabulary) -> Values:
    match operator:
        case "from":
            return {**vocabulary.sender_domains, **vocabulary.senders}
        case "to":
            return {**vocabulary.recipient_domains, **vocabulary.recipients}
        case "domain":
            return vocabulary.domains
        case "url":
            return vocabulary.hosts
        case "tag":
            return vocabulary.tags
    return {}


def _beginning(value: str, known: Values) -> list[str]:
    """Return the most frequent values that begin with the text."""
    if not value:
        return []
    return _by_frequency([each for each in known if each.startswith(value)], known)


def _with_part(value: str, known: Values) -> list[str]:
    """Return the most frequent values of which a part begins with the text."""
    value = value.lower()
    found = [each for each in known if value in each and (each.startswith(value) or _has_part(each, value))]
    return _by_frequency(found, known)


def _has_part(text: str, value: str) -> bool:
    return any(text.startswith(value, part.end()) for part in _PARTS.finditer(text))


def _by_frequency(found: list[str], known: Values) -> list[str]:
    return sorted(found, key=lambda each: (-known[each], each))[:MAX_SHOWN]


def _quoted(value: str) -> str:
    return f'"{value}"' if any(map(str.isspace, value)) else value


def _is_term(completion: Completion) -> bool:
    """Return whether a completion is an operator, or parses as one term."""
    if completion.text.removesuffix(":") in OPERATORS:
        return True
    if not completion.text.isprintable() or completion.text.startswith("tenant:"):
        return completion.text.isprintable() and completion.text.count('"') in (0, 2)
    try:
        return len(parse_terms(completion.text)) == 1
    except InvalidQuery:
        return False
