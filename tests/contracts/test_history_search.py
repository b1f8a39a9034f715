"""Every history store answers searches, impact previews and counts within a scope."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.database.pool import Database
from mailwarden.errors import InvalidQuery
from mailwarden.history import search_pages
from mailwarden.history.store import Cursor, HistoryStore, Order, Row
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import first_ggrid, new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest, LinkSummary, MessageSummary, PartSummary
from mailwarden.model.scope import Scope
from mailwarden.search.query import parse_query
from mailwarden.search.terms import domain_term, hash_term, network_term
from tests.samples.finished import finished_request

ALL = Scope.deployment()
NOW = datetime.now(UTC)
PAYLOAD = "5e" * 32


def ggrid_at(moment: datetime) -> UUID:
    return UUID(int=first_ggrid(moment).int | (new_ggrid().int & ((1 << 62) - 1)))


def message(number: int = 0, *, age: timedelta = timedelta(), **given: Any) -> FinishedRequest:
    """Make a request; `age` is how long ago it began."""
    base = finished_request(tenant=given.get("tenant"), ggrid=ggrid_at(NOW - age))
    summary = MessageSummary(
        size=1_000,
        sha256=f"{number:064x}",
        from_address=given.get("sender", f"someone{number}@other.example"),
        from_name=given.get("name", ""),
        subject=given.get("subject", "Hello there"),
        parts=(PartSummary("1", "application/pdf", "a.pdf", 10, given.get("part", "aa" * 32)),),
        url_hosts=given.get("hosts", ()),
        links=given.get("links", ()),
    )
    envelope = Envelope(
        given.get("bounce", "bounce@mailer.example"),
        given.get("to", ("bob@acme.example",)),
        given.get("ip", "198.51.100.9"),
    )
    judgement = msgspec.structs.replace(
        base.judgement,
        verdict=given.get("verdict", Verdict.CLEAN),
        tags=given.get("tags", ()),
        points={"phishing": given.get("points", 0), "spam": -5},
    )
    ruling = msgspec.structs.replace(base.ruling, decision=given.get("decision", Decision.DELIVER), tags=())
    return msgspec.structs.replace(base, summary=summary, envelope=envelope, judgement=judgement, ruling=ruling)


async def found(
    store: HistoryStore, text: str, scope: Scope = ALL, since: datetime | None = None, until: datetime | None = None
) -> list[UUID]:
    page = await store.search(scope, parse_query(text, since=since, until=until))
    assert page.complete
    return [row.ggrid for row in page.rows]


WANTED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"sender": "Alice@Mail.Sender.Example"},
        [
            "from:alice@mail.sender.example",
            "from:mail.sender.example",
            "from:sender.example",
            "from:@sender.example",
            "from:*.sender.example",
            "alice[@]mail[.]sender[.]example",
            "domain:sender.example",
            "sender.example",
        ],
    ),
    ({"name": "Jane Doe of PayPaul"}, ["from:paypaul", 'from:"Jane Doe"', "paypa", '"jane doe"']),
    (
        {"name": "Björn Łukasz", "sender": "b.lukasz@rechnung.nordlicht-gmbh.example"},
        ["bjorn", "Björn", "BJÖRN", "lukas", "nordlicht", "nordl", "gmbh", "nordlicht-gm", "from:nordlicht"],
    ),
    ({"sender": "jane.doe@shop.example"}, ["jane.doe", "jane", "jane.doe@", "jane.doe@shop", "from:jane", "from:doe"]),
    ({"sender": "mueller@shop.example"}, ["müller", "mueller", "from:müll"]),
    ({"sender": "x@müller.example"}, ["müller", "muller", "from:muller"]),
    ({"to": ("Renée.O'Hara@acme.example",)}, ["renee", "hara", "to:renee", "to:ren"]),
    ({"hosts": ("login.nordlicht.example",)}, ["nordlicht", "login"]),
    ({"bounce": "x@bulk.sender.example"}, ["from:x@bulk.sender.example", "from:bulk.sender.example"]),
    ({"bounce": ""}, ["from:<>"]),
    ({"to": ("bob@acme.example", "Eve@Deep.Target.example")}, ["to:eve@deep.target.example", "to:target.example"]),
    ({"sender": "a@grüße.example"}, ["from:grüße.example", "from:a@xn--gre-6ka8l.example", "domain:GRÜße.example"]),
    (
        {"subject": "RE: Your  GIFT Card, Grüße"},
        [
            "subject:gift",
            "gift",
            "gif",
            "subject:car",
            'subject:"gift card"',
            '"your gift card"',
            "subject:GRÜẞE",
            "grüße",
            "grusse",
            "gruesse",
            "gif*",
        ],
    ),
    ({"subject": "请查看您的发票附件"}, ["发票", "subject:您的发票"]),
    (
        {"ip": "203.0.113.77"},
        ["ip:203.0.113.77", "203.0.113.77", "ip:203.0.113.0/24", "ip:203.0.113.64/27", "ip:203.0.0.0/17"],
    ),
    ({"ip": "2001:db8:1:2::9"}, ["ip:2001:db8:1:2::9", "ip:2001:db8:1::/48", "ip:2001:db8:1:2::/61"]),
    ({"tags": ("url.mismatch", "auth.spf-fail")}, ["tag:url.mismatch", "tag:auth.spf-fail,list.ip-block"]),
    (
        {"verdict": Verdict.PHISHING},
        ["verdict:phishing", "verdict:malware,phishing", "-verdict:clean", "verdict:PHISHING"],
    ),
    ({"decision": Decision.QUARANTINE}, ["decision:quarantine", "-decision:deliver"]),
    (
        {"hosts": ("login.evil.example",)},
        ["url:login.evil.example", "url:evil.example", "hxxps://login[.]evil[.]example/"],
    ),
    (
        {"links": (LinkSummary("click", "https://evil.example/a/b?token=1#x", "evil.example"),)},
        ["url:https://evil.example/a/b", "url:evil.example/a/b?token=2", "hxxp://evil[.]example/a/b"],
    ),
    ({"part": PAYLOAD}, [f"hash:{PAYLOAD}", PAYLOAD.upper()]),
    ({"tenant": UUID(int=7)}, [f"tenant:{UUID(int=7)}"]),
]


@pytest.mark.parametrize(("given", "texts"), WANTED)
async def test_every_operator_finds_the_message_and_its_negation_the_others(
    store: HistoryStore, given: dict[str, Any], texts: list[str]
) -> None:
    wanted, others = message(1, **given), [message(number, age=timedelta(hours=number)) for number in range(2, 6)]
    await store.save(ALL, [wanted, *others])
    for text in texts:
        assert await found(store, text) == [wanted.ggrid], text
        if not text.startswith("-"):
            assert await found(store, f"-{text}") == [other.ggrid for other in others], text


async def test_one_letter_matches_whole_words_only(store: HistoryStore) -> None:
    plan, planet = message(subject="plan b"), message(subject="planet", age=timedelta(hours=1))
    await store.save(ALL, [plan, planet])
    assert await found(store, "subject:b") == [plan.ggrid]
    assert await found(store, "subject:p") == []
    assert await found(store, "subject:pl") == [plan.ggrid, planet.ggrid]


async def test_words_of_another_tenant_are_never_found(store: HistoryStore) -> None:
    mine, other = message(subject="Invoice one"), message(subject="Invoice two", name="Björn")
    await store.save(ALL, [mine, other])
    scope = Scope.of(mine.tenant)
    assert await found(store, "invoic", scope) == [mine.ggrid]
    for text in ("bjorn", "two", "from:bjorn", "two -one", "bjorn.two", '"invoice two"'):
        assert await found(store, text, scope) == [], text
    assert await found(store, "-two", scope) == [mine.ggrid]
    assert await found(store, "two", Scope.of(mine.tenant, uuid4())) == []
    assert set(await found(store, "invoic", Scope.of(mine.tenant, other.tenant))) == {mine.ggrid, other.ggrid}


@pytest.mark.parametrize(
    "text", ["'", "a' | 'b", "x\\", "x:*", "!a", "a & b", "(a", "a<->b", "%", "a%_", "$1", "\u202e"]
)
async def test_words_with_characters_of_the_index_are_harmless(store: HistoryStore, text: str) -> None:
    await store.save(ALL, [message(subject="something else")])
    try:
        query = parse_query(f'"{text}"')
    except InvalidQuery:
        return
    assert (await store.search(ALL, query)).rows == ()


async def test_words_that_stand_apart_are_not_a_phrase(store: HistoryStore) -> None:
    apart, together = message(subject="a card for a gift"), message(subject="a gift card", age=timedelta(hours=1))
    await store.save(ALL, [apart, together])
    assert await found(store, '"gift card"') == [together.ggrid]
    assert await found(store, '-"gift card"') == [apart.ggrid]
    assert await found(store, "gift card") == [apart.ggrid, together.ggrid]


async def test_several_terms_must_all_hold(store: HistoryStore) -> None:
    both = message(sender="a@x.example", verdict=Verdict.SPAM)
    one = message(sender="a@x.example", age=timedelta(hours=1))
    await store.save(ALL, [both, one])
    assert await found(store, "from:x.example verdict:spam") == [both.ggrid]
    assert await found(store, "from:x.example -verdict:spam") == [one.ggrid]
    assert await found(store, "from:y.example verdict:spam") == []
    assert await found(store, "") == [both.ggrid, one.ggrid]


async def test_a_ggrid_finds_its_row_and_no_other(store: HistoryStore) -> None:
    requests = [message(number, age=timedelta(hours=number)) for number in range(3)]
    await store.save(ALL, requests)
    assert await found(store, f"ggrid:{requests[1].ggrid}") == [requests[1].ggrid]
    assert await found(store, str(requests[1].ggrid)) == [requests[1].ggrid]
    assert await found(store, f"-ggrid:{requests[1].ggrid}") == [requests[0].ggrid, requests[2].ggrid]
    assert await found(store, f"ggrid:{new_ggrid()}") == []


async def test_a_scope_finds_its_own_tenants_rows_alone(store: HistoryStore) -> None:
    requests = [message(number, age=timedelta(minutes=number), verdict=Verdict.SPAM) for number in range(6)]
    await store.save(ALL, requests)
    for text in ("", "verdict:spam", "-verdict:clean", "hello", "-from:nobody.example", "domain:acme.example"):
        assert await found(store, text, Scope.of(requests[2].tenant)) == [requests[2].ggrid], text
        two = Scope.of(requests[1].tenant, requests[4].tenant, uuid4())
        assert await found(store, text, two) == [requests[1].ggrid, requests[4].ggrid], text
        assert await found(store, text, Scope.of()) == []
        assert await found(store, text, Scope.of(uuid4())) == []
    two = Scope.of(requests[1].tenant, requests[4].tenant)
    assert await found(store, f"-tenant:{requests[1].tenant}", two) == [requests[4].ggrid]
    assert await found(store, f"-tenant:{requests[1].tenant} -tenant:{requests[4].tenant}", two) == []
    assert await found(store, f"tenant:{requests[1].tenant}", two) == [requests[1].ggrid]
    other = Scope.of(requests[0].tenant)
    assert await found(store, f"tenant:{requests[1].tenant}", other) == []
    assert await found(store, f"ggrid:{requests[1].ggrid}", other) == []


async def test_the_time_range_holds_on_both_ends(store: HistoryStore) -> None:
    requests = [message(number, age=timedelta(hours=8 * number)) for number in range(6)]
    await store.save(ALL, requests)
    since, until = NOW - timedelta(hours=33), NOW - timedelta(hours=7)
    assert await found(store, "hello", since=since, until=until) == [each.ggrid for each in requests[1:5]]
    assert await found(store, "", since=since) == [each.ggrid for each in requests[:5]]
    assert await found(store, "-subject:nothing", until=until) == [each.ggrid for each in requests[1:]]


async def test_pages_follow_one_another_newest_first_without_gap_or_repetition(store: HistoryStore) -> None:
    requests = [message(number, age=timedelta(hours=number)) for number in range(25)]
    await store.save(ALL, requests)
    for text in ("", "subject:hello", "-verdict:spam"):
        met: list[UUID] = []
        before: Cursor | None = None
        for _ in range(3):
            page = await store.search(ALL, parse_query(text), before, 10)
            assert page.complete
            met += [row.ggrid for row in page.rows]
            before = page.next
        assert before is None
        assert met == [request.ggrid for request in requests], text


@pytest.mark.contract("3 mixed recipients")
@pytest.mark.parametrize("text", ["", "subject:hello", 'subject:"hello there"', "-verdict:spam"])
async def test_pages_lose_no_row_of_a_ggrid_with_several_tenants(store: HistoryStore, text: str) -> None:
    tenants = [uuid4() for _ in range(7)]
    ggrids = sorted((new_ggrid() for _ in range(3)), reverse=True)
    rows = [finished_request(tenant, ggrid, "hello there") for ggrid in ggrids for tenant in tenants]
    assert (await store.save(ALL, rows)).stored == len(rows)
    for size in (1, 2, 5, 7, 20):
        met: list[tuple[UUID, UUID]] = []
        page = await store.search(ALL, parse_query(text), None, size)
        while True:
            met += [(row.ggrid, row.tenant) for row in page.rows]
            if page.next is None or len(met) > len(rows):
                break
            page = await store.search(ALL, parse_query(text), page.next, size)
        assert sorted(met) == sorted((row.ggrid, row.tenant) for row in rows)
        assert len(set(met)) == len(met)
    for tenant in tenants:
        page = await store.search(Scope.of(tenant), parse_query(text))
        assert [(row.ggrid, row.tenant) for row in page.rows] == [(ggrid, tenant) for ggrid in ggrids]


async def test_a_row_has_the_fields_of_the_message_list(store: HistoryStore) -> None:
    request = finished_request()
    await store.save(ALL, [request])
    (row,) = (await store.search(ALL, parse_query("verdict:phishing"))).rows
    assert (row.ggrid, row.tenant, row.created) == (request.ggrid, request.tenant, request.created)
    assert (row.from_address, row.from_name) == ("alice@sender.example", "Alice")
    assert row.recipients == ("bob@acme.example", "eve@acme.example")
    assert (row.subject, row.verdict, row.decision) == ("Grüße 🎁", Verdict.PHISHING, Decision.QUARANTINE)
    assert row.tags == request.tags
    assert row.summary == "A link shows another place than it leads to."


async def test_a_cursor_that_is_not_a_ggrid_is_rejected(store: HistoryStore) -> None:
    with pytest.raises(InvalidQuery):
        await store.search(ALL, parse_query(""), Cursor(uuid4()))


async def test_candidates_have_one_of_the_terms_and_come_whole(store: HistoryStore) -> None:
    first = message(1, sender="a@x.example", age=timedelta(hours=1))
    second = message(2, part=PAYLOAD, age=timedelta(hours=2))
    third = message(3, ip="192.0.2.4", age=timedelta(hours=3))
    old = message(4, sender="a@x.example", age=timedelta(hours=40))
    await store.save(ALL, [first, second, third, old, message(5)])
    from ipaddress import ip_network

    terms = [domain_term("from", "x.example"), hash_term(PAYLOAD), network_term(ip_network("192.0.2.0/24"))]
    since = NOW - timedelta(hours=30)
    assert list(await store.candidates(ALL, terms, since, 10)) == [first, second, third]
    assert list(await store.candidates(ALL, terms, since, 2)) == [first, second]
    assert list(await store.candidates(Scope.of(second.tenant), terms, since, 10)) == [second]
    assert len(await store.candidates(ALL, [], since, 10)) == 4
    counted = await store.count(ALL, terms, since)
    assert (counted.counted, counted.exact, counted.estimate) == (3, True, 3)
    assert (await store.count(ALL, [], since)).counted == 4
    assert (await store.count(Scope.of(second.tenant), terms, since)).counted == 1
    assert (await store.count(Scope.of(), terms, since)).counted == 0


async def test_retention_of_a_tenant_deletes_its_own_rows(store: HistoryStore) -> None:
    mine, others = uuid4(), uuid4()
    old, new = (message(tenant=mine, age=timedelta(hours=hours)) for hours in (40, 0))
    kept = message(tenant=others, age=timedelta(hours=40))
    await store.save(ALL, [old, new, kept])
    today = NOW.date()
    assert await store.delete_for_tenants(Scope.of(others), {mine: today}) == 0
    assert await store.delete_for_tenants(ALL, {mine: today}) == 1
    assert await store.delete_for_tenants(ALL, {mine: today}) == 0
    assert await store.find(ALL, old.ggrid) is None
    assert await store.find(ALL, new.ggrid) == new
    assert await store.find(ALL, kept.ggrid) == kept


@pytest.mark.parametrize("text", ["", "subject:hello", "-verdict:spam", 'subject:"hello there"'])
async def test_oldest_first_has_the_same_rows_in_reverse_order(store: HistoryStore, text: str) -> None:
    tenants = [uuid4(), uuid4(), UUID(int=8), UUID(int=9)]
    ggrids = [ggrid_at(NOW - timedelta(hours=5 * number)) for number in range(8)]
    await store.save(ALL, [finished_request(tenant, ggrid, "hello there") for ggrid in ggrids for tenant in tenants])
    newest = (await store.search(ALL, parse_query(text), None, 200)).rows
    assert len(newest) == 32
    for size in (3, 40) if text else (1, 3, 7, 40):  # the way through the pages is the same for every text
        met: list[Row] = []
        page = await store.search(ALL, parse_query(text), None, size, Order.OLDEST)
        met += page.rows
        while page.next is not None and len(met) <= len(newest):
            page = await store.search(ALL, parse_query(text), page.next, size, Order.OLDEST)
            assert page.complete
            met += page.rows
        assert met == list(reversed(newest))
    since, until = NOW - timedelta(hours=22), NOW - timedelta(hours=4)
    page = await store.search(Scope.of(UUID(int=9)), parse_query(text, since=since, until=until), order=Order.OLDEST)
    assert [(row.ggrid, row.tenant) for row in page.rows] == [(ggrid, UUID(int=9)) for ggrid in ggrids[4:0:-1]]


async def test_most_points_first_orders_the_matches(store: HistoryStore) -> None:
    points = [10, 250, 40, 250, 0, 90]
    requests = [message(number, age=timedelta(hours=number), points=each) for number, each in enumerate(points)]
    await store.save(ALL, requests)
    page = await store.search(ALL, parse_query("hello"), None, 4, Order.POINTS)
    assert [(row.points, row.ggrid) for row in page.rows] == [(points[n], requests[n].ggrid) for n in (1, 3, 5, 2)]
    assert (page.complete, page.next) == (True, Cursor.of(requests[2]))
    rest = await store.search(ALL, parse_query("hello"), page.next, 4, Order.POINTS)
    assert ([row.points for row in rest.rows], rest.next) == ([10, 0], None)
    own = await store.search(Scope.of(requests[5].tenant), parse_query(""), None, 4, Order.POINTS)
    assert [row.ggrid for row in own.rows] == [requests[5].ggrid]
    assert (await store.search(Scope.of(uuid4()), parse_query(""), None, 4, Order.POINTS)).rows == ()


async def test_a_vocabulary_has_the_values_of_its_own_scope_alone(store: HistoryStore) -> None:
    mine = message(1, sender="Alice@Nordlicht.example", subject="Invoice", hosts=("login.evil.example",))
    again = message(2, tenant=mine.tenant, sender="alice@nordlicht.example", subject="Invoice two", tags=("url.new",))
    other = message(3, sender="eve@secret.example", subject="Hidden", to=("carl@bank.example",))
    await store.save(ALL, [mine, again, other])
    own = await store.vocabulary(Scope.of(mine.tenant))
    assert own.messages == 2
    assert (own.senders, own.recipients) == ({"alice@nordlicht.example": 2}, {"bob@acme.example": 2})
    assert (own.hosts, own.tags) == ({"login.evil.example": 1}, {"url.new": 1})
    assert own.lexemes["sinvoice"] == own.lexemes["fnordlicht"] == 2
    assert not any(
        word in lexeme for lexeme in own.lexemes for word in ("eve", "secret", "hidden", "carl", "bank", "@")
    )
    everything = await store.vocabulary(ALL)
    assert everything.messages == 3
    assert everything.senders == {"alice@nordlicht.example": 2, "eve@secret.example": 1}
    assert (await store.vocabulary(Scope.of())).messages == 0
    assert (await store.vocabulary(Scope.of(uuid4()))).messages == 0
    assert (await store.vocabulary(Scope.of(mine.tenant))) == own
    assert (await store.vocabulary(Scope.of(mine.tenant, other.tenant))).messages == 3


_REPORT = """
INSERT INTO training_reports (uid, tenant, kind, digest, size, ggrid, subject, reported_by)
VALUES (gen_random_uuid(), $1, 'spam', sha256($2::uuid::text::bytea), 1, $2, '', 'user:a')
"""


@pytest.mark.parametrize(("text", "number"), [("is:reported", 3), ("-is:reported", 4)])
async def test_facets_of_a_state_never_count_the_messages_without_it(
    store: HistoryStore, database: Database, monkeypatch: pytest.MonkeyPatch, text: str, number: int
) -> None:
    tenant = uuid4()
    messages = [message(each, tenant=tenant) for each in range(7)]
    await store.save(ALL, messages)
    async with database.connection() as connection:
        await connection.execute("INSERT INTO tenants (uid, name) VALUES ($1, 'a')", tenant)
        for each in messages[:3]:
            await connection.execute(_REPORT, tenant, each.ggrid)
    facets = await store.facets(ALL, parse_query(text))
    assert (facets.total, facets.exact) == (number, True)
    monkeypatch.setattr(search_pages, "MAX_COUNTED", 2)
    facets = await store.facets(ALL, parse_query(text))
    assert (facets.total, facets.exact) in ((number, True), (2, False))
