"""One run for each kind of torture, over the same product, with progress output."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from workshop.rig.caller import HOST, Caller, caller_context
from workshop.rig.product import Overrides, Product
from workshop.torture.ambiguous import ambiguous
from workshop.torture.bombs import Bomb, bombs
from workshop.torture.cases import Case, Expected, run_http_case
from workshop.torture.http_cases import http_cases
from workshop.torture.json_cases import json_cases
from workshop.torture.messages import STRUCTURE_MILLISECONDS, caller_of, run_ambiguous, run_bomb
from workshop.torture.multipart_cases import multipart_cases
from workshop.torture.results import Result, Results, show_progress

# The slow cases wait for these deadlines to pass.
ABBY: Overrides = {"headerTimeout": 6_000, "bodyTimeout": 6_000, "log": {"level": "warning"}}
GUARD: Overrides = {"log": {"level": "warning"}}
AT_ONCE = 4
RAW_AT_ONCE = 8

T = TypeVar("T")
Run = Callable[[Product, Results], Awaitable[None]]


async def run_bombs(
    product: Product,
    results: Results,
    chosen: Iterable[Bomb] | None = None,
    limit: float = STRUCTURE_MILLISECONDS,
) -> None:
    """Run the bombs one after the other, so that each is timed alone."""
    every = list(bombs() if chosen is None else chosen)
    async with caller_of(product) as caller:
        for number, bomb in enumerate(every, 1):
            show_progress(f"bombs {number}/{len(every)} {bomb.name}")
            results.add(await run_bomb(caller, bomb, limit))


async def run_ambiguous_messages(product: Product, results: Results) -> None:
    await _side_by_side("ambiguous", product, results, list(ambiguous()), run_ambiguous)


async def run_http(product: Product, results: Results) -> None:
    await run_cases("http", product, results, list(http_cases()))


async def run_multipart(product: Product, results: Results) -> None:
    await run_cases("multipart", product, results, list(multipart_cases()))


async def run_json(product: Product, results: Results) -> None:
    await run_cases("json", product, results, list(json_cases()))


RUNS: dict[str, Run] = {
    "bombs": run_bombs,
    "ambiguous": run_ambiguous_messages,
    "http": run_http,
    "multipart": run_multipart,
    "json": run_json,
}


async def run_cases(kind: str, product: Product, results: Results, cases: Sequence[Case]) -> None:
    """Run raw cases, each on its own connection."""
    context, token = caller_context(product.ca), product.token

    async def run_one(_: Caller, case: Case) -> Result:
        began = time.monotonic()
        try:
            outcome = await run_http_case(HOST, product.abby.port, context, token, case)
        except OSError as error:
            return Result(kind, case.name, f"no connection: {error}", 0.0)
        took = (time.monotonic() - began) * 1000
        if outcome.passed:
            return Result(kind, case.name, "", took)
        came = f"came {_text(Expected(outcome.status, outcome.error, outcome.answers))}"
        wanted = " or ".join(map(_text, case.expected))
        form = "" if outcome.request_id or not outcome.status else ", without X-Request-Id"
        return Result(kind, case.name, f"expected {wanted}, {came}{form}", took)

    await _side_by_side(kind, product, results, cases, run_one, at_once=RAW_AT_ONCE)


def _text(expected: Expected) -> str:
    if not expected.answers:
        return "a closed connection"
    times = "" if expected.answers == 1 else f" ({expected.answers} answers)"
    return f"{expected.status} {expected.error}".strip() + times


async def _side_by_side(
    kind: str,
    product: Product,
    results: Results,
    every: Sequence[T],
    run_one: Callable[[Caller, T], Awaitable[Result]],
    *,
    at_once: int = AT_ONCE,
) -> None:
    waiting = iter(every)
    done = 0

    async def run_on() -> None:
        nonlocal done
        async with caller_of(product) as caller:
            for one in waiting:
                results.add(await run_one(caller, one))
                done += 1
                show_progress(f"{kind} {done}/{len(every)}")

    await asyncio.gather(*(run_on() for _ in range(at_once)))
