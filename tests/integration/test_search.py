"""Searches of a made-up history in a real PostgreSQL: by the index, and within their time."""

from types import ModuleType
from uuid import UUID

import asyncpg
import pytest

from mailwarden.database.pool import Database
from mailwarden.errors import SearchTooBroad
from mailwarden.history import search_pages
from mailwarden.history.opening import open_history
from mailwarden.history.postgresql import partitions, vocabulary
from mailwarden.history.postgresql import search as searcher
from mailwarden.history.store import Cursor, HistoryStore, Order
from mailwarden.journal.records import decode
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.query import Query, condition_matches, parse_query
from mailwarden.search.terms import terms_of
from tests.samples.finished import finished_request
from workshop.bench import history

ALL = Scope.deployment()
ROWS = 1_800


@pytest.fixture
async def made_history(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a history of ROWS messages; the senders and subjects of millions would take a minute to make."""
    for name in ("SENDERS", "RECIPIENTS", "SUBJECTS", "HOSTS"):
        monkeypatch.setattr(history, name, getattr(history, name) // 20)
    await history.build_history(database_url, ROWS)


def matches(query: Query, request: FinishedRequest, terms: frozenset[str] | None = None) -> bool:
    """Return whether a request matches, by its whole record instead of columns and index."""
    moment = moment_of(request.ggrid)
    if moment is None or (query.since and moment < query.since) or (query.until and moment >= query.until):
        return False
    known = frozenset(terms_of(request)) if terms is None else terms
    return all(condition_matches(condition, known, request) for condition in query.conditions)


async def everything(url: str) -> list[FinishedRequest]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT record FROM history ORDER BY ggrid DESC")
    await connection.close()
    return [decode(row["record"]) for row in rows]


async def pages(store: HistoryStore, scope: Scope, query: Query, pages: int) -> list[UUID]:
    met: list[UUID] = []
    before: Cursor | None = None
    for _ in range(pages):
        page = await store.search(scope, query, before, 40)
        met += [row.ggrid for row in page.rows]
        before = page.next
        if before is None:
            break
    return met


async def test_a_search_past_its_deadline_reports_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_history(database)
    await store.save(ALL, [finished_request()])
    slow = searcher._SELECT_FIRST.replace("SELECT tenant", "SELECT pg_sleep(9), tenant")
    monkeypatch.setattr(searcher, "_SELECT_FIRST", slow)
    monkeypatch.setattr(searcher, "STATEMENT_TIMEOUT", 0.05)
    with pytest.raises(SearchTooBroad, match="narrow the time range"):
        await store.search(ALL, parse_query("verdict:phishing"))
    monkeypatch.undo()
    assert len((await store.search(ALL, parse_query(""))).rows) == 1


async def test_a_search_past_its_deadline_returns_partial_results_and_a_cursor(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searcher, "NEWEST", 1)
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 0.0)
    store = open_history(database)
    await store.save(ALL, [finished_request() for _ in range(5)])
    page = await store.search(ALL, parse_query("-verdict:phishing"), None, 1)
    assert (page.rows, page.complete) == ((), False)
    assert page.next is not None
    assert page.searched_to is not None
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 5.0)
    assert (await store.search(ALL, parse_query("-verdict:phishing"), page.next)).complete


@pytest.mark.parametrize("asked", ["", "verdict:phishing", "verdict:clean", "-verdict:clean", '"nothing of this kind"'])
async def test_a_short_history_is_searched_completely_on_a_slow_machine(
    database: Database, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 0.0)
    store = open_history(database)
    assert (await store.search(ALL, parse_query(asked))).complete, "there is nothing"
    kept = [finished_request() for _ in range(5)]
    await store.save(ALL, kept)
    page = await store.search(ALL, parse_query(asked))
    fit = [request for request in kept if matches(parse_query(asked), request)]
    assert (len(page.rows), page.complete, page.next) == (len(fit), True, None)


async def test_a_continued_search_reads_every_row_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searcher, "NEWEST", 1)
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 0.0)
    store = open_history(database)
    kept = [finished_request() for _ in range(9)]
    await store.save(ALL, kept)
    oldest = min(each.ggrid for each in kept)
    query, place, complete = parse_query(f"-ggrid:{oldest} verdict:clean"), None, []
    for _ in range(3):
        page = await store.search(ALL, query, place, 1)
        place = page.next
        complete.append(page.complete)
    assert (page.rows, complete) == ((), [False, False, True]), "four rows at a time"


async def test_every_day_old_and_new_has_the_index(database: Database, database_url: str) -> None:
    await open_history(database).save(ALL, [finished_request()])
    connection = await asyncpg.connect(database_url)
    without = await connection.fetch(
        """
        SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'history'::regclass AND NOT EXISTS (
            SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
            WHERE indrelid = inhrelid AND amname = 'gin')
        """
    )
    await connection.close()
    assert without == []


@pytest.mark.usefixtures("made_history")
async def test_a_search_for_words_uses_the_index_of_words(database_url: str) -> None:
    clauses = searcher.Clauses(ALL, parse_query("case1 invo").conditions, 0)
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute(searcher.INDEX)
        plan = await connection.fetch(f"EXPLAIN SELECT ggrid FROM history WHERE {clauses.sql}", *clauses.values)
    await connection.close()
    text = "\n".join(row[0] for row in plan)
    assert "words_idx" in text or "history_words" in text, text
    assert "Seq Scan on history" not in text


_HOLD = """
WITH kept AS (
    INSERT INTO quarantine (uid, tenant, ggrid, vault, size, sender, from_address, from_name, subject, verdict,
                            received, expires)
    VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), 1, '', '', '', '', 'spam', now(), now()) RETURNING uid
)
INSERT INTO quarantine_recipients (message, number, recipient, folded, state)
SELECT uid, number, 'a', 'a', state FROM kept, unnest($3::text[]) WITH ORDINALITY AS each (state, number)
"""
_REPORT = """
INSERT INTO training_reports (uid, tenant, kind, digest, size, ggrid, subject, reported_by)
VALUES (gen_random_uuid(), $1, 'spam', sha256($2::uuid::text::bytea), 1, $2, '', 'user:a')
"""


async def test_the_states_of_quarantine_and_reports_are_found_within_the_scope(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = UUID(int=1), UUID(int=2)
    held, released, both, reported, plain = (finished_request(mine) for _ in range(5))
    foreign = finished_request(other, held.ggrid)
    store = open_history(database)
    await store.save(ALL, [held, released, both, reported, plain, foreign])
    connection = await asyncpg.connect(database_url)
    for tenant in (mine, other):
        await connection.execute("INSERT INTO tenants (uid, name) VALUES ($1, $2)", tenant, str(tenant))
    await connection.execute(_HOLD, mine, held.ggrid, ["held"])
    await connection.execute(_HOLD, mine, released.ggrid, ["released", "deleted"])
    await connection.execute(_HOLD, mine, both.ggrid, ["releasing", "released"])
    await connection.execute(_REPORT, mine, reported.ggrid)
    await connection.execute(_REPORT, mine, both.ggrid)
    await connection.close()

    async def rows(text: str, scope: Scope = ALL) -> set[tuple[UUID, UUID]]:
        return {(row.ggrid, row.tenant) for row in (await store.search(scope, parse_query(text))).rows}

    def of(*requests: FinishedRequest) -> set[tuple[UUID, UUID]]:
        return {(request.ggrid, request.tenant) for request in requests}

    for newest in (4_000, 1):
        monkeypatch.setattr(searcher, "NEWEST", newest)
        assert await rows("is:held") == of(held, both), "another tenant has the same ggrid and holds nothing"
        assert await rows("is:released") == of(released, both)
        assert await rows("is:reported") == of(reported, both)
        assert await rows("is:held is:released") == of(both)
        assert await rows("is:held verdict:phishing grusse") == of(held, both)
        assert await rows("-is:held -is:released") == of(reported, plain, foreign)
        assert await rows("is:undecided") == set()
        assert await rows("is:held", Scope.of(other)) == set()
        assert await rows("is:held", Scope.of(mine)) == of(held, both)
    facets = await store.facets(ALL, parse_query("verdict:phishing"))
    assert (facets.total, facets.exact) == (6, True)
    assert facets.states == {"held": 2, "released": 2, "reported": 2, "undecided": 0}
    assert facets.tenants == {mine: 5, other: 1}
    assert (facets.verdicts, facets.decisions) == ({"phishing": 6}, {"quarantine": 6})
    facets = await store.facets(Scope.of(other), parse_query(""))
    assert (facets.total, facets.states, facets.tenants) == (1, {"undecided": 0}, {other: 1})


async def test_facets_cover_a_part_and_the_total_says_if_it_is_exact(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_pages, "MAX_COUNTED", 3)
    monkeypatch.setattr(search_pages, "MAX_COMPARED", 3)
    store = open_history(database)
    kept = [finished_request() for _ in range(4)]
    await store.save(ALL, kept)
    facets = await store.facets(ALL, parse_query(""))
    assert (facets.total, facets.exact, facets.counted) == (4, True, 3)
    assert (await store.facets(Scope.of(kept[0].tenant), parse_query(""))).total == 1
    phrase = await store.facets(ALL, parse_query('-"no such subject"'))
    assert (phrase.total, phrase.exact, phrase.counted) == (3, False, 3), "phrases are not counted by the index"
    page = await store.search(ALL, parse_query(""), None, 2, Order.POINTS)
    assert (len(page.rows), page.complete) == (2, False), "one match was not compared"
    assert page.searched_to == moment_of(sorted(each.ggrid for each in kept)[1])
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 0.0)
    slow = partitions._DAYS.replace("SELECT", "SELECT pg_sleep(0.001),", 1)
    monkeypatch.setattr(partitions, "_DAYS", slow)
    late = await store.facets(ALL, parse_query(""))
    assert (late.total, late.exact) == (3, False), "the days are read within a time of their own"


@pytest.mark.parametrize(("module", "name"), [(partitions, "_DAYS"), (searcher, "STATES_OF")])
async def test_a_slow_statement_of_a_search_is_not_an_outage(
    module: ModuleType, name: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_history(database)
    await store.save(ALL, [finished_request()])
    monkeypatch.setattr(module, name, getattr(module, name).replace("SELECT", "SELECT pg_sleep(9),", 1))
    monkeypatch.setattr(searcher, "STATEMENT_TIMEOUT", 0.05)
    with pytest.raises(SearchTooBroad):
        await store.facets(ALL, parse_query(""))
    monkeypatch.undo()
    assert (await store.facets(ALL, parse_query(""))).total == 1


async def test_the_oldest_are_found_by_the_index_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searcher, "NEWEST", 2)
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 60.0)
    store = open_history(database)
    kept = sorted((finished_request() for _ in range(9)), key=lambda each: each.ggrid)
    await store.save(ALL, kept)
    page = await store.search(ALL, parse_query(f"-ggrid:{kept[0].ggrid}"), None, 1, Order.OLDEST)
    met = [row.ggrid for row in page.rows]
    while page.next:
        page = await store.search(ALL, parse_query(f"-ggrid:{kept[0].ggrid}"), page.next, 1, Order.OLDEST)
        met += [row.ggrid for row in page.rows]
    assert met == [each.ggrid for each in kept[1:]]


async def test_a_vocabulary_out_of_time_is_empty_and_not_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_history(database)
    await store.save(ALL, [finished_request()])
    slow = vocabulary._OF_NEWEST.replace("AS history WHERE", "AS history WHERE pg_sleep(9) IS NOT NULL AND")
    monkeypatch.setattr(vocabulary, "_OF_NEWEST", slow)
    monkeypatch.setattr(vocabulary, "TIMEOUT", 0.05)
    assert (await store.vocabulary(ALL)).messages == 0
    monkeypatch.undo()
    assert (await store.vocabulary(ALL)).messages == 1
