"""Sends bombs and ambiguous messages to the product, and checks the response and the duration in history."""

import asyncio
import time

from mailwarden.message.structure import check_structure
from workshop.rig.caller import HOST, Answer, Caller, NoAnswerError, caller_context
from workshop.rig.product import Product
from workshop.torture.ambiguous import Ambiguous
from workshop.torture.bombs import Bomb
from workshop.torture.results import Result

STRUCTURE_MILLISECONDS = 250.0
# A structure check that was late because of other load is not late again and again.
TRIES = 3
HISTORY_SECONDS = 5.0
# The product's size limit, less the envelope and the frame of the upload.
LARGEST = 52_428_800 - 1_024
CONSPICUOUS = {"analysis.ambiguous-mime", "analysis.structure-limit"}


def caller_of(product: Product) -> Caller:
    return Caller(product.abby.port, caller_context(product.ca), product.token, patience=120.0)


async def run_bomb(caller: Caller, bomb: Bomb, limit: float = STRUCTURE_MILLISECONDS) -> Result:
    """Submit a bomb; its structure check may take `limit` milliseconds.

    A bomb that need not trip may still cost an engine its deadline: the message is then undecided, and affects no
    other.
    """
    message = (await asyncio.to_thread(bomb.make))[:LARGEST]
    wrong, took, answered = "", 0.0, 0.0
    for _ in range(TRIES):
        began = time.monotonic()
        wrong, took = await _bomb_once(caller, message, limit, trips=bomb.trips)
        answered = (time.monotonic() - began) * 1000
        if not wrong or took <= limit:
            break
    return Result("bombs", bomb.name, wrong, answered, took)


async def _bomb_once(caller: Caller, message: bytes, limit: float, *, trips: bool) -> tuple[str, float]:
    try:
        answer = await caller.submit(message)
    except NoAnswerError as error:
        return f"no answer: {error}", 0.0
    if not message:
        return ("" if answer.error == "empty_email" else f"expected 400 empty_email, came {answer}"), 0.0
    if answer.status != 200:
        return f"came {answer}", 0.0
    took = await structure_milliseconds(caller, str(answer.record["ggrid"]))
    if took is None:
        return "history has no time of the structure check", 0.0
    if took > limit:
        return f"the structure check took {took:.0f} ms, {_structure_cpu(message):.0f} ms of them on a processor", took
    return _misjudged(answer, trips=trips), took


def _structure_cpu(message: bytes) -> float:
    """Return the milliseconds of CPU for the structure check of a message; the rest of a duration is waiting."""
    began = time.process_time()
    check_structure(message)
    return (time.process_time() - began) * 1000


def _misjudged(answer: Answer, *, trips: bool) -> str:
    record = answer.record
    decision, tags = record["decision"], record["tags"]
    assert isinstance(tags, list)
    if trips and ("analysis.structure-limit" not in tags or decision != "quarantine"):
        return f"expected quarantine for analysis.structure-limit, came {answer}"
    if record["verdict"] == "unknown" and decision != "undecided":
        return f"expected undecided for an analysis that did not finish, came {answer}"
    return ""


async def run_ambiguous(caller: Caller, message: Ambiguous) -> Result:
    """Submit an ambiguous message with malware in it: the malware or the ambiguity must be reported."""
    began = time.monotonic()
    try:
        answer = await caller.submit(message.raw)
    except NoAnswerError as error:
        return Result("ambiguous", message.name, f"no answer: {error}", 0.0)
    took = (time.monotonic() - began) * 1000
    if answer.status != 200:
        return Result("ambiguous", message.name, f"came {answer}", took)
    tags = answer.record["tags"]
    assert isinstance(tags, list)
    reported = answer.record["verdict"] == "malware" or bool(CONSPICUOUS & set(tags))
    return Result("ambiguous", message.name, "" if reported else f"passed in silence: {answer}", took)


async def structure_milliseconds(caller: Caller, ggrid: str) -> float | None:
    """Return the duration of the structure check from history, or None if it did not finish."""
    end = time.monotonic() + HISTORY_SECONDS
    answer = await caller.call("GET", f"/v1/messages/{ggrid}")
    while answer.status == 404 and time.monotonic() < end:
        answer = await caller.call("GET", f"/v1/messages/{ggrid}")
    engines = answer.record.get("engines")
    assert isinstance(engines, list), f"{HOST} answered {answer}"
    finished = [e["milliseconds"] for e in engines if e["analyzer"] == "structure" and e["status"] == "finished"]
    return float(finished[0]) if finished else None
