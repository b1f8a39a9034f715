"""The ClickHouse store keeps rows once, announces and counts them once, and reports every outage as one."""

import asyncio
import re
from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, ConfigurationError, SearchTooBroad, StorageUnavailable
from mailwarden.events.scanned import ScannedEvents
from mailwarden.history import search_pages
from mailwarden.history.clickhouse import ledger as ledger_module
from mailwarden.history.clickhouse import schema, search
from mailwarden.history.clickhouse.binary import (
    Reader,
    encode_varint,
    read_rows,
    text_literal,
)
from mailwarden.history.clickhouse.client import Clickhouse, Kind, Reads, Target, TooSlow
from mailwarden.history.clickhouse.ledger import Ledger
from mailwarden.history.clickhouse.rows import encode_row
from mailwarden.history.clickhouse.schema import NAMES, engine_mistake, prepare, table_statement
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.opening import open_history
from mailwarden.history.postgresql import states
from mailwarden.history.store import HistoryRow, Order, Range
from mailwarden.model.ggrid import first_ggrid
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.query import parse_query
from mailwarden.senders.model import SenderCounts
from tests.samples.finished import finished_request
from workshop.rig.clickhouse import EmbeddedClickhouse
from workshop.rig.ports import free_port

ALL = Scope.deployment()
TODAY = datetime.now(UTC).date()


async def announced(database: Database) -> int:
    async with database.connection() as connection:
        found = await connection.fetchval("SELECT count(*) FROM events WHERE type = 'message.scanned'")
    assert isinstance(found, int)
    return found


async def rows_of(clickhouse: Clickhouse) -> int:
    return read_rows(await clickhouse.read("SELECT count() FROM history FORMAT RowBinary"), Reader.uint64)[0]


async def insert(clickhouse: Clickhouse, *requests: FinishedRequest) -> None:
    """Insert rows past the store, as another guard does at the same moment."""
    rows = [row for request in requests if (row := encode_row(HistoryRow.of(request)))]
    await clickhouse.insert(f"INSERT INTO history ({NAMES}) FORMAT RowBinary", b"".join(row.data for row in rows))


class Down:
    """A ClickHouse that stores nothing after its answer to the question for stored rows."""

    def __init__(self, clickhouse: Clickhouse, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(statement: str, rows: bytes) -> None:
            raise StorageUnavailable("The history store is down.", retry_after=1)

        self._context = monkeypatch.context()
        self._clickhouse, self._fail = clickhouse, fail

    def __enter__(self) -> None:
        self._context.__enter__().setattr(self._clickhouse, "insert", self._fail)

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


async def test_a_batch_that_is_sent_again_announces_and_counts_once(
    clickhouse: Clickhouse, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ClickhouseHistoryStore(clickhouse, database, ScannedEvents())
    requests = [finished_request() for _ in range(6)]
    counted: list[FinishedRequest] = []

    def counting(new: Sequence[FinishedRequest]) -> SenderCounts:
        counted.extend(new)
        return SenderCounts(TODAY)

    with Down(clickhouse, monkeypatch), pytest.raises(StorageUnavailable):
        await store.save(ALL, requests[:4], counting)
    assert await rows_of(clickhouse) == 0
    for batch in (requests[:2], requests, requests[3:]):  # after a restart the batches are others
        assert (await store.save(ALL, batch, counting)).stored == len(batch)
    assert len(counted) == len(requests) == await announced(database)
    assert await rows_of(clickhouse) == len(requests)


async def test_rows_that_another_store_has_are_not_announced_again(clickhouse: Clickhouse, database: Database) -> None:
    request = finished_request()
    await insert(clickhouse, request)  # as after `mailwarden history migrate`
    store = ClickhouseHistoryStore(clickhouse, database, ScannedEvents())
    assert (await store.save(ALL, [request])).stored == 1
    assert await announced(database) == 0


async def test_two_rows_of_one_key_are_read_as_the_first_completed(clickhouse: Clickhouse, database: Database) -> None:
    first = finished_request(subject="first invoice")
    later = replace(
        first,
        completed=first.completed + timedelta(seconds=1),
        summary=replace(first.summary, subject="second invoice"),
        judgement=replace(first.judgement, verdict=Verdict.CLEAN),
    )
    await insert(clickhouse, later)
    await insert(clickhouse, first)
    await insert(clickhouse, later)
    store = ClickhouseHistoryStore(clickhouse, database)
    assert await store.find(ALL, first.ggrid) == first
    for text, found in (("invoice", 1), ("first", 1), ("second", 0), ("verdict:clean", 0), ("-verdict:clean", 1)):
        assert len((await store.search(ALL, parse_query(text))).rows) == found, text
    statistics = await store.statistics(ALL, Range.DAY)
    assert (statistics.messages, statistics.verdicts[Verdict.CLEAN]) == (1, 0)
    await store.update_rollups(ALL)
    assert (await store.today(ALL))["verdict:phishing"] == 1
    assert (await store.vocabulary(ALL)).messages == 1
    assert (await store.count(ALL, [], first.created - timedelta(hours=1))).counted == 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that a busy machine does not end."""
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 60_000.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST])
async def test_rows_that_are_stored_several_times_fill_pages_once(
    order: Order, clickhouse: Clickhouse, database: Database
) -> None:
    store = ClickhouseHistoryStore(clickhouse, database)
    requests = [finished_request() for _ in range(5)]
    for _ in range(3):
        await insert(clickhouse, *requests)
    place, seen = None, []
    for _ in range(3):
        page = await store.search(ALL, parse_query(""), place, limit=2, order=order)
        seen += [row.ggrid for row in page.rows]
        place = page.next
    assert seen == sorted((request.ggrid for request in requests), reverse=order is Order.NEWEST)


class SlowFetches:
    """Lets some fetches of records take too long: those with these numbers."""

    def __init__(self, clickhouse: Clickhouse, monkeypatch: pytest.MonkeyPatch, slow: Set[int]) -> None:
        self.number, self._slow, self._read = 0, slow, clickhouse.read_limited
        monkeypatch.setattr(clickhouse, "read_limited", self.read_limited)

    async def read_limited(self, statement: str, seconds: float, reads: Reads | None = None) -> bytes:
        if "SELECT ggrid, tenant, record" in statement:
            self.number += 1
            if self.number in self._slow:
                raise TooSlow("Code: 159")
        return await self._read(statement, seconds, reads)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST])
@pytest.mark.parametrize("text", ["", '"invoice for"'])  # a phrase is checked after every statement
@pytest.mark.parametrize("slow", [{2}, {1, 2, 4}])
async def test_no_row_is_skipped_after_a_slow_fetch(
    slow: Set[int],
    text: str,
    order: Order,
    clickhouse: Clickhouse,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "FETCHED", 20)
    monkeypatch.setattr(search, "MORE_KEYS", 30)
    now = datetime.now(UTC)
    requests = [
        finished_request(ggrid=first_ggrid(now - timedelta(minutes=each)), subject="Invoice for May")
        for each in range(120)
    ]
    await insert(clickhouse, *requests)
    store, fetches = ClickhouseHistoryStore(clickhouse, database), SlowFetches(clickhouse, monkeypatch, slow)
    seen, place, refused = list[UUID](), None, 0
    while True:
        try:
            page = await store.search(ALL, parse_query(text), place, limit=50, order=order)
        except SearchTooBroad:  # nothing was read: the same page is asked for again
            refused += 1
            assert refused <= len(slow)
            continue
        seen += [row.ggrid for row in page.rows]
        if page.next is None:
            break
        place = page.next
    assert seen == sorted((request.ggrid for request in requests), reverse=order is Order.NEWEST)
    assert fetches.number > max(slow)


@pytest.mark.usefixtures("patient")
async def test_a_search_through_a_month_takes_few_calls(
    clickhouse: Clickhouse, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "QUICK_SECONDS", 600.0)  # every window counts as quick
    store, calls = ClickhouseHistoryStore(clickhouse, database), Calls()
    now = datetime.now(UTC)
    old = [finished_request(ggrid=first_ggrid(now - timedelta(days=days))) for days in (0, 3, 28)]
    await insert(clickhouse, *old)
    clickhouse.meters = calls
    assert len((await store.search(ALL, parse_query("grüße"))).rows) == 3
    assert calls.number == 5  # the days; an hour, 30 hours, the rest; the records
    assert len((await store.search(ALL, parse_query("grüße"))).rows) == 3
    assert calls.number == 9  # the days are known


@pytest.mark.usefixtures("patient")
async def test_a_new_day_of_another_guard_is_found_after_a_second(clickhouse: Clickhouse, database: Database) -> None:
    store, now = ClickhouseHistoryStore(clickhouse, database), datetime.now(UTC)
    assert not (await store.search(ALL, parse_query(""))).rows
    await insert(clickhouse, finished_request(ggrid=first_ggrid(now)))
    assert len((await store.search(ALL, parse_query(""))).rows) == 1
    await insert(clickhouse, finished_request(ggrid=first_ggrid(now - timedelta(days=2))))
    await asyncio.sleep(schema.DAYS_SECONDS + 0.05)
    assert len((await store.search(ALL, parse_query(""))).rows) == 2
    await store.save(ALL, [finished_request(ggrid=first_ggrid(now - timedelta(days=4)))])
    assert len((await store.search(ALL, parse_query(""))).rows) == 3


class Calls:
    """Counts the calls to ClickHouse."""

    def __init__(self) -> None:
        self.number = 0

    def took(self, kind: Kind, seconds: float) -> None:
        self.number += 1

    def failed(self) -> None:
        raise AssertionError("ClickHouse is down")

    def stale_read(self) -> None:
        raise AssertionError("a replica is behind")


async def test_no_answer_is_an_outage_and_never_an_empty_result(database: Database) -> None:
    client = Clickhouse(Target((f"http://127.0.0.1:{free_port()}",)))
    store = ClickhouseHistoryStore(client, database)
    request = finished_request()
    now = datetime.now(UTC)
    try:
        for call in (
            store.save(ALL, [request]),
            store.find(ALL, request.ggrid),
            store.tenants_of(ALL, request.ggrid),
            store.search(ALL, parse_query("invoice")),
            store.facets(ALL, parse_query("")),
            store.candidates(ALL, [], now, 10),
            store.count(ALL, [], now),
            store.statistics(ALL, Range.DAY),
            store.attacked(ALL, Range.DAY),
            store.vocabulary(ALL),
            store.update_rollups(ALL),
            store.delete_days(ALL, TODAY),
            store.delete_for_tenants(ALL, {uuid4(): TODAY}),
        ):
            with pytest.raises(StorageUnavailable):
                await call
        assert not await client.probe()
    finally:
        await client.close()


async def test_a_missing_table_keeps_the_rows_waiting(
    clickhouse_server: EmbeddedClickhouse, database: Database, clickhouse: Clickhouse
) -> None:
    store = ClickhouseHistoryStore(clickhouse, database)
    await clickhouse.execute("DROP TABLE history")
    with pytest.raises(StorageUnavailable, match="mailwarden history prepare"):
        await store.save(ALL, [finished_request()])
    with pytest.raises(StorageUnavailable, match="mailwarden history prepare"):
        await store.search(ALL, parse_query("verdict:spam", since=datetime.now(UTC) - timedelta(days=1)))


@pytest.mark.parametrize(
    ("version", "quorum", "text"),
    [
        ("1.1.54390", 0, r"history needs 18\.16 or newer"),
        ("", 0, r"history needs 18\.16 or newer"),
        ("18.16.1", 2, r"quorum needs 23\.8 or newer"),
    ],
)
async def test_a_server_that_is_too_old_is_refused_before_any_change(
    version: str, quorum: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Clickhouse(Target(("http://old.example",), quorum=quorum))
    statements: list[str] = []

    async def answer(url: str, statement: str, *, database: str | None = None) -> bytes:
        statements.append(statement)
        return version.encode()

    monkeypatch.setattr(client, "execute_on", answer)
    with pytest.raises(CommandError, match=text):
        await prepare(client, replicated=True)
    assert statements == ["SELECT version()"]


async def test_the_next_replica_answers_while_one_is_down(
    clickhouse_server: EmbeddedClickhouse, clickhouse: Clickhouse, database: Database
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    client = Clickhouse(replace(clickhouse.target, urls=(dead, clickhouse_server.address)))
    try:
        store = ClickhouseHistoryStore(client, database)
        request = finished_request()
        assert (await store.save(ALL, [request])).stored == 1
        assert await store.find(ALL, request.ggrid) == request
        assert client.up
    finally:
        await client.close()


async def test_a_row_too_far_from_today_is_put_aside(clickhouse: Clickhouse, database: Database) -> None:
    from tests.contracts.test_history_search import ggrid_at

    old, good = finished_request(ggrid=ggrid_at(datetime.now(UTC) - timedelta(days=40))), finished_request()
    saved = await ClickhouseHistoryStore(clickhouse, database).save(ALL, [old, good])
    assert (saved.stored, [each.request for each in saved.rejected]) == (1, [old])


async def test_old_keys_leave_the_ledger(clickhouse: Clickhouse, database: Database) -> None:
    await ClickhouseHistoryStore(clickhouse, database).save(ALL, [finished_request() for _ in range(3)])
    ledger = Ledger(database)
    assert await ledger.delete_old() == 0
    async with database.connection() as connection:
        await connection.execute("UPDATE history_ledger SET added = added - 4")
    assert await ledger.delete_old() == 3


@pytest.mark.parametrize("text", ["'", "\\", "a'b\\'c", "\x00", "\ud800", "🎁", "%", "{x}"])
def test_a_literal_has_hexadecimal_digits_only(text: str) -> None:
    assert re.fullmatch(r"'(\\x[0-9a-f]{2})*'", text_literal(text))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_a_length_is_read_as_it_was_written(number: int) -> None:
    assert Reader(encode_varint(number))._varint() == number


def test_a_truncated_answer_is_an_error() -> None:
    with pytest.raises(StorageUnavailable, match="ends within a value"):
        read_rows(b"\x05abc", Reader.raw)


def test_the_table_depends_on_the_version_of_the_server() -> None:
    old, new = (table_statement("mw", version, replicated=True) for version in ((18, 16), (26, 9)))
    assert "CODEC" not in old
    assert "LowCardinality" not in old
    assert "bloom_filter" in new
    assert all("ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/mw/history'" in each for each in (old, new))


class OtherServer:
    """Answers every call with 200 and the same page, as a proxy during maintenance does."""

    def __init__(self, page: bytes) -> None:
        self._page = page

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self._page)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + self._page)
        await writer.drain()
        writer.close()


@pytest.mark.parametrize("page", [b"", b"<html>We will be back soon.</html>"])
async def test_a_page_of_another_server_is_an_outage(page: bytes, database: Database) -> None:
    async with OtherServer(page) as url:
        client = Clickhouse(Target((url,)))
        try:
            with pytest.raises(StorageUnavailable, match="not answered by ClickHouse"):
                await insert(client, finished_request())
            with pytest.raises(StorageUnavailable, match="not answered by ClickHouse"):
                await ClickhouseHistoryStore(client, database).save(ALL, [finished_request()])
        finally:
            await client.close()


async def test_a_statement_over_its_limit_is_an_outage_or_a_broad_search(
    clickhouse: Clickhouse, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(statement: str, seconds: float, reads: Reads | None = None) -> bytes:
        raise TooSlow("Code: 159")

    store = ClickhouseHistoryStore(clickhouse, database)
    await store.save(ALL, [finished_request()])
    monkeypatch.setattr(clickhouse, "read_limited", slow)
    for call in (
        store.search(ALL, parse_query("invoice")),
        store.candidates(ALL, [], datetime.now(UTC), 10),
        store.count(ALL, [], datetime.now(UTC)),
        store.save(ALL, [finished_request()]),
        store.find(ALL, finished_request().ggrid),
        store.delete_days(ALL, TODAY),
        store.delete_for_tenants(ALL, {uuid4(): TODAY}),
    ):
        with pytest.raises((StorageUnavailable, SearchTooBroad)):
            await call


async def test_a_period_that_cannot_be_marked_is_an_outage(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(connection: object, oldest: datetime) -> None:
        raise asyncpg.DataError("out of range")

    monkeypatch.setattr(ledger_module, "mark_late", refuse)
    row = encode_row(HistoryRow.of(finished_request()))
    assert row is not None
    with pytest.raises(StorageUnavailable, match="does not accept history"):
        await Ledger(database).mark_late([row])


async def test_a_table_that_is_not_replicated_is_refused(
    clickhouse: Clickhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url,) = clickhouse.target.urls
    assert "is not replicated" in await engine_mistake(clickhouse, url, replicated=True)
    assert not await engine_mistake(clickhouse, url, replicated=False)
    monkeypatch.setattr(schema, "table_statement", lambda *given, **options: "SELECT 1")
    with pytest.raises(ConfigurationError, match="is not replicated"):
        await prepare(clickhouse, replicated=True)


async def test_retention_deletes_the_rows_from_before_the_switch(clickhouse: Clickhouse, database: Database) -> None:
    from tests.contracts.test_history_search import ggrid_at

    earlier, store = open_history(database), ClickhouseHistoryStore(clickhouse, database)
    now = datetime.now(UTC)
    old, older = (finished_request(ggrid=ggrid_at(now - timedelta(days=days))) for days in (4, 6))
    await earlier.save(ALL, [old, older])
    await store.delete_days(ALL, TODAY - timedelta(days=5))
    assert await earlier.find(ALL, older.ggrid) is None
    assert await earlier.find(ALL, old.ggrid) == old
    assert await store.delete_for_tenants(ALL, {old.tenant: TODAY}) == 1
    assert await earlier.find(ALL, old.ggrid) is None


async def test_a_setting_that_the_server_does_not_know_is_left_out(clickhouse: Clickhouse) -> None:
    with pytest.raises(StorageUnavailable):
        await clickhouse.execute("SELECT no_such_column", optional={"no_such_setting": "0"})
    assert await clickhouse.execute("SELECT 1", optional={"no_such_setting": "0"}) == b"1\n"
    assert await clickhouse.execute("SELECT 1", optional={"max_partition_size_to_drop": "0"}) == b"1\n"


async def test_a_row_that_one_replica_shows_is_sent_again(
    clickhouse: Clickhouse, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    async def send(statement: str, rows: bytes) -> None:
        sent.append(statement)

    request = finished_request()
    await insert(clickhouse, request)  # on one replica: it lost Keeper, or the quorum was not reached
    monkeypatch.setattr(clickhouse, "insert", send)
    for replicated, times in ((False, 0), (True, 1)):
        monkeypatch.setattr(clickhouse, "target", replace(clickhouse.target, replicated=replicated))
        store = ClickhouseHistoryStore(clickhouse, database, ScannedEvents())
        assert (await store.save(ALL, [request])).stored == 1
        assert (len(sent), await announced(database)) == (times, 0)


async def test_a_scope_of_many_tenants_is_searched(clickhouse: Clickhouse, database: Database) -> None:
    store, request = ClickhouseHistoryStore(clickhouse, database), finished_request()
    await store.save(ALL, [request])
    scope = Scope.of(request.tenant, *(uuid4() for _ in range(20_000)))
    assert len((await store.search(scope, parse_query(""))).rows) == 1
    assert await store.find(scope, request.ggrid) == request
    assert (await store.count(scope, [], request.created - timedelta(hours=1))).counted == 1


def test_modern_tables_reach_the_disk_before_an_insert_is_answered() -> None:
    old, new = (table_statement("mw", version, replicated=True) for version in ((18, 16), (26, 9)))
    assert "fsync_after_insert = 1, fsync_part_directory = 1" in new
    assert "fsync" not in old


@pytest.mark.usefixtures("patient")
async def test_states_that_take_too_long_are_a_broad_search_and_no_outage(
    clickhouse: Clickhouse, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ClickhouseHistoryStore(clickhouse, database)
    await store.save(ALL, [finished_request()])
    monkeypatch.setattr(states, "STATEMENT_TIMEOUT", 0.2)
    async with database.connection() as connection, connection.transaction():
        await connection.execute("LOCK TABLE quarantine")
        for call in (
            store.search(ALL, parse_query("is:held")),
            store.search(ALL, parse_query("-is:held")),
            store.facets(ALL, parse_query("")),
        ):
            with pytest.raises(SearchTooBroad):
                await call
    assert len((await store.search(ALL, parse_query("-is:held"))).rows) == 1
