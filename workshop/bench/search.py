"""The first page of a search over five million messages, operator by operator."""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import uvloop

from mailwarden.console.near_matches import find_near_matches
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore, Order, Range
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scope import Scope
from mailwarden.search.completions import completions
from mailwarden.search.query import parse_query
from mailwarden.search.terms import domain_term
from workshop.bench import history as made
from workshop.bench.made_database import made_database

ROWS = 5_000_000
RUNS = 40
GOAL = 300.0  # milliseconds of the first page, unless it says how far it searched
ALL = Scope.deployment()
LARGE, *_, SMALL = made.TENANTS

Draw = Callable[[random.Random], str]


def rare(most: int) -> Callable[[random.Random], int]:
    return lambda chosen: chosen.randint(most // 4, most)


def frequent(chosen: random.Random) -> int:
    return chosen.randint(1, 20)


def operators() -> Mapping[str, Draw]:
    """Return the searches by name: a frequent value, a rare one and a missing one of each operator."""
    seldom, subject, site = rare(made.SENDERS), rare(made.SUBJECTS), rare(made.HOSTS)
    return {
        "nothing": lambda _: "",
        "from: address, frequent": lambda chosen: f"from:{made.sender(frequent(chosen))[0]}",
        "from: address, rare": lambda chosen: f"from:{made.sender(seldom(chosen))[0]}",
        "from: address, absent": lambda chosen: f"from:nobody{chosen.random()}@absent.example",
        "from: domain, rare": lambda chosen: f"from:{made.sender(seldom(chosen))[1]}",
        "from: every sender": lambda chosen: "from:mail.company1.example" if chosen.random() < 0.1 else "from:person",
        "to: address": lambda chosen: f"to:user{chosen.randrange(made.RECIPIENTS)}@" + _recipient_domain(chosen),
        "to: domain, 60 %": lambda _: "to:tenant0.example",
        "to: domain, 1 %": lambda _: "to:tenant99.example",
        "to: absent": lambda chosen: f"to:user{chosen.random()}@tenant0.example",
        "subject: word, frequent": lambda chosen: f"subject:{chosen.choice(made.WORDS)}",
        "subject: word, rare": lambda chosen: f"subject:case{subject(chosen)}",
        "subject: word, absent": lambda chosen: f"subject:nothing{chosen.randrange(1_000_000)}",
        "subject: phrase": lambda chosen: f'subject:"{" ".join(made.subject(subject(chosen)).split()[:2])}"',
        "subject: phrase, absent": lambda chosen: f'subject:"{chosen.choice(made.WORDS)} {chosen.choice(made.WORDS)}x"',
        "subject: beginning of a word": lambda chosen: f"subject:{chosen.choice(made.WORDS)[:3]}",
        "word: frequent": lambda chosen: chosen.choice(made.WORDS),
        "word: beginning, frequent": lambda chosen: chosen.choice(made.WORDS)[:3],
        "word: rare": lambda chosen: f"case{subject(chosen)}",
        "word: beginning of many rare words": lambda chosen: f"case{chosen.randint(10, 19)}",
        "word: part of a domain, rare": lambda chosen: f"company{seldom(chosen) % 9_000}",
        "word: first part of an address": lambda chosen: f"person{seldom(chosen)}",
        "word: absent": lambda chosen: f"nothing{chosen.randrange(1_000_000)}",
        "word: one letter": lambda chosen: chosen.choice("abcxyz"),
        "words: two frequent": lambda chosen: f"{chosen.choice(made.WORDS)} {chosen.choice(made.WORDS)}",
        "words: frequent and rare": lambda chosen: f"{chosen.choice(made.WORDS)[:4]} company{seldom(chosen) % 9_000}",
        "words: frequent, never together": lambda _: "case1 case2 user1",
        "words: phrase": lambda chosen: f'"{" ".join(made.subject(subject(chosen)).split()[:2])}"',
        "words: sender and verdict": lambda chosen: f"from:person{seldom(chosen)} verdict:spam",
        "to: part of an address": lambda chosen: f"to:user{chosen.randrange(made.RECIPIENTS)}",
        "words: domain or name": lambda chosen: f"person{seldom(chosen)}.company1",
        "-word": lambda chosen: f"-{chosen.choice(made.WORDS)} -verdict:clean",
        "domain: frequent": lambda chosen: f"domain:{made.sender(frequent(chosen))[1]}",
        "domain: rare": lambda chosen: f"domain:host{site(chosen)}.example",
        "domain: absent": lambda chosen: f"domain:absent{chosen.randrange(1_000_000)}.example",
        "ip: address, frequent": lambda chosen: f"ip:{made.sender(frequent(chosen))[2]}",
        "ip: address, rare": lambda chosen: f"ip:{made.sender(seldom(chosen))[2]}",
        "ip: network /24": lambda chosen: f"ip:{made.sender(seldom(chosen))[2]}/24",
        "ip: network /20": lambda chosen: f"ip:{made.sender(seldom(chosen))[2]}/20",
        "ip: network /16, absent": lambda chosen: f"ip:172.{chosen.randint(16, 31)}.0.0/16",
        "tag: frequent": lambda chosen: f"tag:{chosen.choice(made.TAGS[:-1])}",
        "tag: 0.1 %": lambda _: "tag:threat.rare",
        "tag: absent": lambda chosen: f"tag:threat.absent{chosen.randrange(1_000)}",
        "verdict:": lambda chosen: f"verdict:{chosen.choice(list(Verdict))}",
        "-verdict:clean": lambda _: "-verdict:clean",
        "decision:": lambda chosen: f"decision:{chosen.choice(list(Decision))}",
        "decision: absent": lambda _: "decision:drop",
        "-decision:deliver": lambda _: "-decision:deliver",
        "tenant: 60 %": lambda _: f"tenant:{LARGE}",
        "tenant: 1 %": lambda _: f"tenant:{SMALL}",
        "-tenant: 60 %": lambda _: f"-tenant:{LARGE}",
        "ggrid: absent": lambda _: "ggrid:01a1471c-0000-7000-a000-000000000000",
        "url: frequent": lambda chosen: f"url:{made.host(frequent(chosen))}",
        "url: rare": lambda chosen: f"url:host{site(chosen)}.example",
        "url: absent": lambda chosen: f"url:https://absent{chosen.random()}.example/login",
        "hash: absent": lambda chosen: f"hash:{chosen.getrandbits(256):064x}",
        "combined: rare and frequent": lambda chosen: f"from:{made.sender(seldom(chosen))[0]} verdict:spam",
        "combined: frequent, never together": lambda _: "verdict:clean decision:quarantine",
        "combined: two tags, one negated": lambda _: (
            "tag:url.mismatch tag:file.macro -tag:auth.spf-fail verdict:malware"
        ),
        "negated: rare": lambda chosen: f"-from:{made.sender(seldom(chosen))[0]}",
        "negated: nearly all": lambda _: "-to:tenant0.example -to:tenant60.example -to:tenant80.example",
        "negated: all": lambda _: "-from:mail.company1.example -ip:10.0.0.0/16 -name -subject:voice verdict:unknown",
    }


def states() -> Mapping[str, Draw]:
    """Return searches for states that no message has: they read the most."""
    return {
        "is: held, absent": lambda _: "is:held",
        "is: released, absent": lambda _: "is:released",
        "is: reported, absent": lambda _: "is:reported verdict:spam",
    }


def _recipient_domain(chosen: random.Random) -> str:
    return f"tenant{chosen.choice((0, 60, 80, 90, 96, 99))}.example"


def ordered() -> Mapping[str, tuple[Draw, Order]]:
    """Return searches in the other orders: everything, and frequent, rare and missing values."""
    every = operators()
    names = (
        "nothing", "from: address, rare", "word: frequent", "word: rare", "word: absent", "verdict:", "subject: phrase",
        "combined: frequent, never together", "-verdict:clean",
    )  # fmt: skip
    return {f"{order} first, {name}": (every[name], order) for order in (Order.OLDEST, Order.POINTS) for name in names}


async def measure(
    store: HistoryStore, scope: Scope, draw: Draw, runs: int, order: Order = Order.NEWEST
) -> tuple[Sequence[float], float, float, int]:
    """Return the milliseconds of each run, the average rows, the fraction of complete pages, and slow ones of them."""
    chosen = random.Random(1)
    times, rows, complete, slow = [], 0, 0, 0
    for _ in range(runs):
        query = parse_query(draw(chosen))
        began = time.perf_counter()
        page = await store.search(scope, query, order=order)
        times.append((time.perf_counter() - began) * 1000)
        rows += len(page.rows)
        complete += page.complete
        slow += page.complete and times[-1] > GOAL
    return times, rows / runs, complete / runs, slow


def p95(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]


async def run(url: str, runs: int) -> tuple[str, float]:
    """Measure every operator in three scopes; return the name and the p95 of the slowest."""
    searches = slow = 0
    database = Database(url)
    store = open_history(database)
    worst = ("", 0.0)
    scopes = {"deployment": ALL, "tenant of 60 %": Scope.of(LARGE), "tenant of 1 %": Scope.of(SMALL)}
    try:
        for place, scope in scopes.items():
            every = {name: (draw, Order.NEWEST) for name, draw in {**operators(), **states()}.items()}
            for name, (draw, order) in {**every, **ordered()}.items():
                times, rows, complete, over = await measure(store, scope, draw, runs, order)
                note = "" if complete == 1 else f"  {100 * (1 - complete):.0f} % stopped early and said so"
                print(
                    f"{place:15} {name:36} p50 {statistics.median(times):6.1f} ms  p95 {p95(times):6.1f} ms"
                    f"  {rows:5.1f} rows{note}",
                    flush=True,
                )
                searches, slow = searches + runs, slow + over
                worst = max(worst, (f"{name} ({place})", p95(times)), key=lambda pair: pair[1])
            for name, times in (await _measure_suggestions(database, scope, runs)).items():
                print(
                    f"{place:15} {name:36} p50 {statistics.median(times):6.1f} ms  p95 {p95(times):6.1f} ms", flush=True
                )
        print(f"{slow} of {searches} searches took more than {GOAL:.0f} ms without saying how far they searched")
        await _measure_counts(store)
        worst = max(worst, ("dashboard", await _measure_dashboard(database)), key=lambda pair: pair[1])
    finally:
        await database.close()
    return worst


async def _measure_suggestions(database: Database, scope: Scope, runs: int) -> Mapping[str, Sequence[float]]:
    """Return the milliseconds of requests that a page makes after it is shown, or while the user types."""
    chosen = random.Random(2)
    times: dict[str, list[float]] = {}

    async def timed(name: str, call: Awaitable[object]) -> None:
        began = time.perf_counter()
        await call
        times.setdefault(name, []).append((time.perf_counter() - began) * 1000)

    for _ in range(max(1, runs // 4)):
        store = open_history(database)  # without a kept vocabulary
        word, number = chosen.choice(made.WORDS), rare(made.SENDERS)(chosen)
        misspelt = word[:1] + word[2] + word[1] + word[3:] + "x"
        await timed("vocabulary, not kept", store.vocabulary(scope))
        await timed("vocabulary, kept", store.vocabulary(scope))
        vocabulary = await store.vocabulary(scope)
        await timed("completions", asyncio.to_thread(completions, f"from:person{number % 90}", vocabulary))
        query = parse_query(misspelt)
        await timed("near matches of a word", find_near_matches(store, scope, misspelt, query, None))
        await timed("total and facets, everything", store.facets(scope, parse_query("")))
        await timed("total and facets, a word", store.facets(scope, parse_query(word)))
    return times


async def _measure_counts(store: HistoryStore) -> None:
    since = datetime.now(UTC) - timedelta(days=30)
    for number in (1, 50, 5_000):
        terms = [domain_term("from", made.sender(number)[1])]
        began = time.perf_counter()
        counted = await store.count(ALL, terms, since)
        middle = time.perf_counter()
        rows = await store.candidates(ALL, terms, since, 2_000)
        counting, reading = (middle - began) * 1000, (time.perf_counter() - middle) * 1000
        exactly = "exactly" if counted.exact else "estimated"
        print(f"impact of sender {number}: {counted.estimate:,} {exactly} in {counting:.0f} ms, ", end="")
        print(f"the newest {len(rows):,} whole in {reading:.0f} ms")


async def _measure_dashboard(database: Database) -> float:
    """Return the p95 of reading the dashboard's figures from the database, without a cache."""
    began = time.perf_counter()
    await open_history(database).update_rollups(ALL)
    print(f"counting eight days of messages took {time.perf_counter() - began:.1f} s", flush=True)
    slowest = 0.0
    for range_ in Range:
        times = []
        for scope in (ALL, Scope.of(LARGE), Scope.of(SMALL), Scope.of(*made.TENANTS)) * 10:
            began = time.perf_counter()
            statistics_ = await open_history(database).statistics(scope, range_)
            times.append((time.perf_counter() - began) * 1000)
        print(f"dashboard {range_}: p50 {statistics.median(times):.1f} ms  p95 {p95(times):.1f} ms", end="")
        print(f"  {statistics_.messages:,} messages", flush=True)
        slowest = max(slowest, p95(times))
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.search --rows 200000"
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="messages in history (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="searches of each kind (%(default)s)")
    arguments = parser.parse_args()
    with made_database(arguments.rows) as url:
        name, slowest = uvloop.run(run(url, arguments.runs))
    print(f"worst: {name}")
    print(f"search {arguments.rows / 1e6:g}M worst operator p95 {slowest:.0f} ms")


if __name__ == "__main__":
    main()
