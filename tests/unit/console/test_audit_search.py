"""Audit events are found by words and operators, as messages are."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest

from mailwarden.access.audit import AuditEvent, AuditFilter, AuditStore
from mailwarden.console import audit_search
from mailwarden.console.audit_search import parse_audit_query, search_audit
from mailwarden.console.screens.audit import read_text
from mailwarden.errors import InvalidQuery
from mailwarden.model.scope import Actor, Scope

NOW = datetime.now(UTC)
ALL = Scope.deployment()


def event(number: int = 1, subject: str = "sender-block") -> AuditEvent:
    actor = Actor("user:Björn", "192.0.2.7", "req-1")
    return AuditEvent(number, NOW, actor, uuid4(), "lists.add", subject, {"after": {"entry": "evil.example"}})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("bjorn", True), ("bjö", True), ("actor:bjorn", True), ("subject:sender", True), ("evil", True),
        ("action:lists", True), ("action:add", True), ("detail:evil.exam", True), ("ip:192.0.2", True), ("block", True),
        ("sender-bl -action:login", True), ('subject:"sender block"', True), ("req", True),
        ("alice", False), ("actor:evil", False), ("-bjorn", False), ("subject:bjorn", False), ("detail:bjorn", False),
        ("bjorn -evil", False), ("jorn", False),
    ],
)  # fmt: skip
def test_words_and_operators_match_an_event(text: str, matches: bool) -> None:
    assert parse_audit_query(text, AuditFilter()).matches(event()) is matches


def test_whole_actors_and_actions_are_left_to_the_database() -> None:
    query = parse_audit_query("actor:user:alice action:lists.add evil", AuditFilter(before=7))
    assert query.filters == AuditFilter(actor="user:alice", action="lists.add", before=7)
    assert len(query.conditions) == 1
    assert parse_audit_query("-actor:user:alice", AuditFilter()).filters == AuditFilter()


@pytest.mark.parametrize("text", ["from:alice", '"open', "...", "x" * 501, " ".join(f"w{n}" for n in range(21))])
def test_an_invalid_search_is_rejected(text: str) -> None:
    with pytest.raises(InvalidQuery):
        parse_audit_query(text, AuditFilter())


def test_filters_of_links_become_terms() -> None:
    assert read_text({"actor": "user:a", "q": " x "}) == 'actor:"user:a" x'
    assert read_text({}) == ""


class Log:
    """An audit log with this many events; the number of an event is in its subject."""

    def __init__(self, size: int) -> None:
        self.size = size

    async def find(self, scope: Scope, filters: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        newest = (filters.before or self.size + 1) - 1
        return [event(number, f"event {number}") for number in range(newest, max(0, newest - limit), -1)]


async def test_a_page_continues_where_the_last_one_ended() -> None:
    log = cast("AuditStore", Log(2_500))
    query = parse_audit_query("subject:7", AuditFilter())
    expected = [number for number in range(2_500, 0, -1) if str(number).startswith("7")]
    met: list[int] = []
    page = await search_audit(log, ALL, query, 40)
    met += [each.number for each in page.events]
    while page.older:
        page = await search_audit(log, ALL, parse_audit_query("subject:7", AuditFilter(before=page.older)), 40)
        met += [each.number for each in page.events]
    assert met == expected
    assert page.complete


async def test_a_search_out_of_time_says_how_far_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "SECONDS", -1.0)
    page = await search_audit(cast("AuditStore", Log(2_500)), ALL, parse_audit_query("nobody", AuditFilter()), 40)
    assert (page.events, page.complete, page.older) == ((), False, 1_501)
