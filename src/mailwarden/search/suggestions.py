"""Completes and corrects searches with the values that occur in recent messages of the same scope.

Security: the values come from hostile messages, the text from a person or a link. Both are bounded, and a vocabulary
belongs to one scope.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from msgspec import Struct

from mailwarden.search import words
from mailwarden.search.query import Condition, Tenants, Term, parse_terms

MAX_LABELS = 5  # of a domain
MAX_CORRECTIONS = 3  # of one term
SIMILAR = 0.75  # the least similarity of a word, as difflib measures it (Ratcliff and Obershelp)
SIMILAR_ADDRESS = 0.8

Values = Mapping[str, int]


class Vocabulary(Struct, frozen=True):
    """The values in recent messages of a scope, each with the number of messages that have it."""

    messages: int = 0  # that it covers
    lexemes: Values = {}  # see search/words.py
    senders: Values = {}
    recipients: Values = {}
    hosts: Values = {}  # of links
    tags: Values = {}

    @property
    def sender_domains(self) -> Values:
        return _domains(self.senders)

    @property
    def recipient_domains(self) -> Values:
        return _domains(self.recipients)

    @property
    def domains(self) -> Values:
        return {**_domains(self.hosts), **self.recipient_domains, **self.sender_domains}

    def words(self, fields: Iterable[str]) -> Values:
        """Return the words of these fields."""
        wanted = frozenset(fields)
        found: dict[str, int] = {}
        for lexeme, number in self.lexemes.items():
            if lexeme[0] in wanted:
                found[lexeme[1:]] = max(found.get(lexeme[1:], 0), number)
        return found


def corrections(text: str, vocabulary: Vocabulary, tenants: Tenants = None) -> list[str]:
    """Return searches like this one, with values that occur; the text must be a valid search.

    The first has the best value for every term that does not occur, the others change one term.
    """
    terms = parse_terms(text, tenants)
    near = {term: found for term in terms if (found := list(near_terms(term.condition, vocabulary)))}
    best = [(term, found[0]) for term, found in near.items()]
    single = [_replaced(text, [(term, value)]) for term, found in near.items() for value in found]
    return list(dict.fromkeys([_replaced(text, best), *single] if best else []))


def reductions(text: str, tenants: Tenants = None) -> list[tuple[str, str]]:
    """Return each term of a search with several terms, and the search without it."""
    terms = parse_terms(text, tenants)
    if len(terms) < 2:
        return []
    return [
        (text[term.start : term.end], " ".join(text[each.start : each.end] for each in terms if each is not term))
        for term in terms
    ]


def near_terms(condition: Condition, vocabulary: Vocabulary) -> Iterator[str]:
    """Yield terms with values that occur and are similar to the value of a condition, which does not occur."""
    if condition.negated or condition.operator in (
        "is",
        "verdict",
        "decision",
        "tenant",
        "ggrid",
        "hash",
        "ip",
        "campaign",
    ):
        return
    if condition.words and not condition.either:
        yield from _near_words(condition, vocabulary)
        return
    known = _known_values(condition, vocabulary)
    value = condition.value
    if value in known or any(each.endswith((f".{value}", f"@{value}")) for each in known):
        return
    is_bare = condition.either or condition.operator == "address"
    operator = "" if is_bare else f"{condition.operator}:"
    for near in _nearest(value, known, SIMILAR_ADDRESS):
        yield f"{operator}{near}"


def _near_words(condition: Condition, vocabulary: Vocabulary) -> Iterator[str]:
    """Yield the words of a condition with the unknown ones replaced."""
    field = words.FIELDS.get(condition.operator)
    known = vocabulary.words((field,) if field else words.EVERYWHERE)
    given = words.split_words(condition.value)
    unknown = [word for word in given if not any(each.startswith(word) for each in known)]
    operator = f"{condition.operator}:" if field else ""
    near = {word: list(_nearest(word, known, SIMILAR)) for word in unknown}
    if not near or not all(near.values()):
        return
    alternatives = max(map(len, near.values())) if len(near) == 1 else 1
    for number in range(alternatives):
        replaced = [near[word][number] if word in near else word for word in given]
        value = replaced[0] if len(replaced) == 1 else f'"{" ".join(replaced)}"'
        yield f"{operator}{value}"


def _known_values(condition: Condition, vocabulary: Vocabulary) -> Values:
    """Return the values that the operator of a condition can have, of the kind that it was given."""
    sender, recipient = vocabulary.senders, vocabulary.recipients
    is_address = "@" in condition.value
    match condition.operator:
        case "tag":
            return vocabulary.tags
        case "from":
            return sender if is_address else vocabulary.sender_domains
        case "to":
            return recipient if is_address else vocabulary.recipient_domains
        case "address":
            return {**sender, **recipient}
        case "url":
            return vocabulary.hosts
    return vocabulary.domains


def _nearest(value: str, known: Values, similarity: float) -> list[str]:
    """Return the most similar values; among equally similar ones difflib decides."""
    if len(value) < 3:
        return []
    return get_close_matches(value, known, MAX_CORRECTIONS, similarity)


def _domains(values: Values) -> Values:
    """Return the domains of addresses and hosts, and the domains above them."""
    found: dict[str, int] = {}
    for value, number in values.items():
        labels = value.rpartition("@")[2].split(".")
        for start in range(max(0, len(labels) - MAX_LABELS), len(labels) - 1):
            domain = ".".join(labels[start:])
            found[domain] = found.get(domain, 0) + number
    return found


def _replaced(text: str, replacements: Iterable[tuple[Term, str]]) -> str:
    """Return the text with some terms replaced, the last one first, so that positions stay."""
    for term, value in sorted(replacements, key=lambda pair: -pair[0].start):
        text = text[: term.start] + value + text[term.end :]
    return text
