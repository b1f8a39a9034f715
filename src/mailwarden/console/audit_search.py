"""Searches the audit log in the language of the message search: words by their beginning, and operators.

Words are compared in Python, newest event first, within a time limit: the audit log has no index of words.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.audit import MAX_EVENTS, AuditEvent, AuditFilter, AuditStore
from mailwarden.console.language import N_
from mailwarden.errors import InvalidQuery
from mailwarden.model.scope import Scope
from mailwarden.search.query import MAX_CHARACTERS, MAX_CONDITIONS, RawTerm, misplaced, split_terms
from mailwarden.search.words import split_words

SECONDS = 0.25  # after which no further page of events is read
# The operators, with an example and its meaning.
OPERATORS: Mapping[str, tuple[str, str]] = {
    "actor": ("actor:alice", N_("the user, key or process that acted")),
    "action": ("action:lists", N_("the action, or its beginning")),
    "subject": ("subject:sender-block", N_("the object of the action")),
    "detail": ("detail:evil", N_("a changed value")),
    "ip": ("ip:192.0.2.7", N_("the client address, or its beginning")),
}


class AuditCondition(Struct, frozen=True):
    """Words that each begin a word of one field; without a field, of any."""

    field: str
    words: tuple[str, ...]
    negated: bool = False


class AuditQuery(Struct, frozen=True):
    """The filters of PostgreSQL, and the conditions that are compared afterwards."""

    filters: AuditFilter
    conditions: tuple[AuditCondition, ...] = ()

    def matches(self, event: AuditEvent) -> bool:
        return all(_matches(condition, event) is not condition.negated for condition in self.conditions)


class AuditPage(Struct, frozen=True):
    """Events, newest first; `older` is the number to continue before. If not `complete`, the time was up."""

    events: tuple[AuditEvent, ...]
    older: int | None = None
    complete: bool = True


def parse_audit_query(text: str, filters: AuditFilter) -> AuditQuery:
    """Return the query of a text, or raise InvalidQuery; whole actors and actions are left to the indexes."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A search has at most {MAX_CHARACTERS} characters; this one has {len(text):,}.")
    conditions: list[AuditCondition] = []
    for term in split_terms(text):
        if term.operator == "actor" and ":" in term.value and not term.negated and filters.actor is None:
            filters = replace(filters, actor=term.value.replace("\x00", ""))
        elif term.operator == "action" and "." in term.value and not term.negated and filters.action is None:
            filters = replace(filters, action=term.value.replace("\x00", ""))
        else:
            conditions.append(_condition(term, text))
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidQuery(f"A search has at most {MAX_CONDITIONS} terms; this one has {len(conditions)}.")
    return AuditQuery(filters, tuple(conditions))


async def search_audit(audit: AuditStore, scope: Scope, query: AuditQuery, limit: int) -> AuditPage:
    """Return the newest events that match, in about SECONDS."""
    if not query.conditions:
        events = await audit.find(scope, query.filters, limit + 1)
        return AuditPage(tuple(events[:limit]), events[limit - 1].number if len(events) > limit else None)
    found: list[AuditEvent] = []
    filters, end = query.filters, time.monotonic() + SECONDS
    while True:
        events = await audit.find(scope, filters, MAX_EVENTS)
        found += filter(query.matches, events)
        if len(found) > limit:
            return AuditPage(tuple(found[:limit]), found[limit - 1].number)
        if len(events) < MAX_EVENTS:
            return AuditPage(tuple(found))
        if time.monotonic() > end:
            return AuditPage(tuple(found), events[-1].number, complete=False)
        filters = replace(filters, before=events[-1].number)


def _condition(term: RawTerm, text: str) -> AuditCondition:
    known = " ".join(f"{name}:" for name in OPERATORS)
    if term.operator and term.operator not in OPERATORS:
        unknown = InvalidQuery(f"Unknown operator `{term.operator}:`. Use {known} or words without an operator.")
        raise misplaced(unknown, term, text)
    found = tuple(dict.fromkeys(split_words(term.value)))
    if not found:
        raise misplaced(InvalidQuery("A search word needs a letter or a digit."), term, text)
    return AuditCondition(term.operator, found, term.negated)


def _matches(condition: AuditCondition, event: AuditEvent) -> bool:
    known = {word for text in _texts(condition.field, event) for word in split_words(text)}
    return all(any(word.startswith(begin) for word in known) for begin in condition.words)


def _texts(field: str, event: AuditEvent) -> Iterator[str]:
    fields: Mapping[str, Sequence[str]] = {
        "actor": (event.actor.name,),
        "action": (event.action,),
        "subject": (event.subject,),
        "ip": (event.actor.address or "",),
    }
    if field in fields:
        yield from fields[field]
        return
    if not field:
        for texts in fields.values():
            yield from texts
        yield event.actor.request_id
    yield msgspec.json.encode(event.details).decode()
