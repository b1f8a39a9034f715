"""What a person may ask of history: terms with operators, every one of which must hold.

`from:alice@sender.example -verdict:clean "gift card"` becomes conditions on the terms that rows keep. A mistake is
a sentence that says what and where; nothing is left out in silence.

Security: reads text that a person typed or that a link brought; bounded, and linear in its length.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import InvalidQuery
from mailwarden.history.operators import Condition, read_bare, read_value

MAX_CHARACTERS = 500
MAX_CONDITIONS = 20

_OPENING, _CLOSING = '"“„', '"”“'
_OPERATOR = re.compile(r"([A-Za-z]{1,20}):")


class Query(Struct, frozen=True):
    """Conditions that all hold, and the time between which the guard requests began."""

    conditions: tuple[Condition, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


def read_query(
    text: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tenants: Mapping[str, UUID] | None = None,
) -> Query:
    """Return what the text asks for, or raise InvalidQuery with a sentence; `tenants` are the names it may use."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A search has at most {MAX_CHARACTERS} characters; this one has {len(text):,}.")
    if since and until and since >= until:
        raise InvalidQuery("The time range ends before it begins.")
    conditions: dict[Condition, None] = {}
    position = 0
    while (position := _skip_spaces(text, position)) < len(text):
        condition, position = _read_condition(text, position, tenants)
        conditions[condition] = None
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidQuery(f"A search has at most {MAX_CONDITIONS} terms; this one has {len(conditions)}.")
    return Query(tuple(conditions), since, until)


def any_of(terms: Sequence[str], since: datetime) -> Query:
    """Return the query for requests that have one of the terms, or for all where there are none."""
    condition = Condition("any", "", (tuple(terms),))
    return Query((condition,) if terms else (), since=since)


def _read_condition(text: str, start: int, tenants: Mapping[str, UUID] | None) -> tuple[Condition, int]:
    position = start
    negated = text[position] == "-" and position + 1 < len(text) and not text[position + 1].isspace()
    position += negated
    operator = ""
    if (found := _OPERATOR.match(text, position)) and not text.startswith("//", found.end()):
        operator, position = found[1].lower(), found.end()
    value, quoted, end = _read_text(text, position)
    try:
        condition = read_value(operator, value, tenants) if operator else read_bare(value, quoted=quoted)
    except InvalidQuery as error:
        raise InvalidQuery(f"{error.message} (at character {start + 1}: `{text[start:end]}`)") from None
    return (replace(condition, negated=True) if negated else condition), end


def _read_text(text: str, start: int) -> tuple[str, bool, int]:
    """Return the value that begins here, whether it stood in quotes, and where it ends."""
    if start < len(text) and text[start] in _OPENING:
        ends = [end for sign in _CLOSING if (end := text.find(sign, start + 1)) >= 0]
        if not ends:
            raise InvalidQuery(f"The quotation mark at character {start + 1} is not closed.")
        return text[start + 1 : min(ends)], True, min(ends) + 1
    end = start
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[start:end], False, end


def _skip_spaces(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position
