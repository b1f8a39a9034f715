"""The WHERE clause of a search in ClickHouse. Every value is an integer or hexadecimal digits (binary.py)."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from uuid import UUID

from mailwarden.history.clickhouse.binary import day_literal, key_literal, list_literal, text_literal
from mailwarden.history.spans import Span, expand_negation, time_of
from mailwarden.history.store import Cursor
from mailwarden.model.scope import Scope
from mailwarden.search.query import Condition
from mailwarden.search.terms import term_hash
from mailwarden.search.words import PREFIX, SEPARATOR

HOUR = 3_600
MANY = 100  # tenants, above which they are one text: ClickHouse refuses a statement of too many expressions


def scope_clause(scope: Scope) -> str:
    """Return the condition that every read has: the tenants of the scope."""
    return tenants_clause(scope.uids())


def tenants_clause(tenants: Sequence[UUID] | None) -> str:
    """Return the condition of these tenants, None is all."""
    if tenants is None:
        return "1"
    if len(tenants) > MANY:
        digits = ",".join(tenant.hex for tenant in tenants)
        return f"tenant IN (SELECT toFixedString(unhex(arrayJoin(splitByChar(',', '{digits}'))), 16))"
    return f"tenant IN ({list_literal(map(key_literal, tenants))})" if tenants else "0"


def hours_literal(ggrids: Iterable[UUID]) -> str:
    """Return the hours of these ggrids."""
    return list_literal(map(str, sorted(set(map(_hour, ggrids)))))


def keys_literal(cursors: Iterable[Cursor]) -> str:
    """Return the list of these rows by their sort key: hour, tenant, ggrid."""
    return list_literal(
        f"({_hour(cursor.ggrid)}, {key_literal(cursor.tenant)}, {key_literal(cursor.ggrid)})"
        for cursor in sorted(cursors)
    )


def span_clause(span: Span) -> str:
    """Return the condition of the rows of a span, first by the columns that the partitions and the key begin with."""
    first, last, low, high, high_tenant, low_tenant = span.values
    lowest, highest = key_literal(low), key_literal(high)
    return (
        f"day >= {day_literal(first)} AND day <= {day_literal(last)} AND hour >= {_hour(low)} AND hour <= {_hour(high)}"
        f" AND ggrid >= {lowest} AND ggrid <= {highest}"
        f" AND (ggrid > {lowest} OR tenant >= {key_literal(low_tenant)})"
        f" AND (ggrid < {highest} OR tenant < {key_literal(high_tenant)})"
    )


def conditions_clause(scope: Scope, conditions: Iterable[Condition]) -> str:
    """Return the condition of the matches within the scope.

    Phrases and states are not in it: the caller checks them. A negated phrase excludes nothing here.
    """
    clauses = [scope_clause(scope)]
    for condition in map(expand_negation, conditions):
        if condition.negated:
            if not condition.phrase and not condition.state:
                clauses.append(f"NOT ({_clause(condition)})")
        else:
            clauses.append(_clause(condition))
    return " AND ".join(f"({clause})" for clause in clauses)


def _hour(ggrid: UUID) -> int:
    return int(time_of(ggrid).timestamp()) // HOUR


def _clause(condition: Condition) -> str:
    expressions = [_has_any(group) for group in condition.groups]
    expressions += [f"({' OR '.join(map(_has_lexeme, group))})" for group in condition.words]
    if condition.either:
        by_terms = " AND ".join(_has_any(group) for group in condition.groups) or "0"
        by_words = " AND ".join(f"({' OR '.join(map(_has_lexeme, group))})" for group in condition.words) or "0"
        expressions = [f"({by_terms}) OR ({by_words})"]
    if condition.network:
        expressions.append(_in_network(condition.network))
    if condition.ggrid is not None:
        expressions.append(f"ggrid = {key_literal(condition.ggrid)}")
    return " AND ".join(f"({expression})" for expression in expressions) or "1"


def _has_any(terms: Sequence[str]) -> str:
    hashes = [str(term_hash(term)) for term in terms]
    if len(hashes) == 1:
        return f"has(terms, {hashes[0]})"
    return f"hasAny(terms, [{list_literal(hashes)}])" if hashes else "0"


def _has_lexeme(pattern: str) -> str:
    is_prefix = pattern.endswith(PREFIX)
    text = SEPARATOR + (pattern[: -len(PREFIX)] if is_prefix else pattern + SEPARATOR)
    return f"position(words, {text_literal(text)}) > 0"


def _in_network(text: str) -> str:
    network = ip_network(text, strict=False)
    low, high = network.network_address.packed, network.broadcast_address.packed
    return (
        f"length(remote_address) = {len(low)} AND remote_address >= {text_literal(low)}"
        f" AND remote_address <= {text_literal(high)}"
    )
