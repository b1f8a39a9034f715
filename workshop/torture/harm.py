"""The delay of other mail during attacks: a harmless message's p99 with and without attacks, in alternating phases."""

import asyncio
import io
import multiprocessing
import os
import random
import statistics
import time
import zipfile
from base64 import encodebytes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.synchronize import Event
from pathlib import Path

from PIL import Image

from workshop.rig.caller import Caller, NoAnswerError, caller_context
from workshop.rig.product import Product
from workshop.rig.samples import plain_message
from workshop.torture.bombs import HEAD, Bomb, bombs
from workshop.torture.messages import caller_of
from workshop.torture.results import show_progress

PHASES = 3
MESSAGES_A_PHASE = 400
RESAMPLES = 2_000  # for the interval of the ratio
SMALL = 2 * 1024 * 1024
SIDE = 4_000  # of a picture of 16 megapixels
DRAIN_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Harm:
    """Milliseconds of a harmless message, with and without attacks."""

    attack: str
    alone: tuple[float, ...]
    beside: tuple[float, ...]
    sent: int

    @property
    def ratio(self) -> float:
        return p99(self.beside) / p99(self.alone)

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the ratio by bootstrap: few messages determine a p99."""
        draw = random.Random(1)
        ratios = sorted(
            p99(draw.choices(self.beside, k=len(self.beside))) / p99(draw.choices(self.alone, k=len(self.alone)))
            for _ in range(RESAMPLES)
        )
        return ratios[RESAMPLES // 40], ratios[-RESAMPLES // 40]

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.attack}: harmless message "
            f"p50 {statistics.median(self.alone):.0f} ms, p99 {p99(self.alone):.0f} ms alone; "
            f"p50 {statistics.median(self.beside):.0f} ms, p99 {p99(self.beside):.0f} ms beside "
            f"{self.sent} of the attack; p99 ratio {self.ratio:.2f} ({low:.2f} to {high:.2f})"
        )


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def measure_harm(
    product: Product, attack: str = "bombs", *, phases: int = PHASES, messages: int = MESSAGES_A_PHASE
) -> Harm:
    """Send harmless messages in phases with and without the attack, which runs in a separate process."""
    spawn = multiprocessing.get_context("spawn")
    attacking, over = spawn.Event(), spawn.Event()
    sent, busy = spawn.Value("i", 0), spawn.Value("i", 0)
    arguments = (attack, product.abby.port, product.ca, product.token, attacking, over, sent, busy)
    attacker = spawn.Process(target=keep_attacking, args=arguments, daemon=True)
    attacker.start()
    alone: list[float] = []
    beside: list[float] = []
    try:
        async with caller_of(product) as caller:
            await _latencies(caller, messages // 4)  # warm up
            for phase in range(phases):
                show_progress(f"harmless message beside {attack}, phase {phase + 1}/{phases}")
                alone += await _latencies(caller, messages)
                attacking.set()
                while busy.value == 0:
                    if not attacker.is_alive():
                        raise RuntimeError(f"the attack `{attack}` ended by itself: nothing is measured")
                    await asyncio.sleep(0.01)
                beside += await _latencies(caller, messages)
                attacking.clear()
                until = time.monotonic() + DRAIN_SECONDS
                while busy.value and time.monotonic() < until:  # the attack ends before the next phase begins
                    await asyncio.sleep(0.05)
    finally:
        over.set()
        attacker.join(30.0)
        attacker.kill()
    return Harm(attack, tuple(alone), tuple(beside), sent.value)


async def _latencies(caller: Caller, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await caller.submit(plain_message())
        assert (answer.status, answer.record["verdict"]) == (200, "clean"), answer
        found.append((time.perf_counter() - began) * 1000)
    return found


def tripping_bombs() -> list[tuple[Bomb, bytes]]:
    """Return the bombs that delay a harmless message: made to break parsers, and small enough to be sent often."""
    made = [(bomb, bomb.make()) for bomb in bombs() if bomb.trips]
    return [(bomb, message) for bomb, message in made if len(message) <= SMALL]


@cache
def picture(form: str) -> bytes:
    """Return a picture of 16 megapixels: PNG of some kilobytes, JPEG of some hundred."""
    out = io.BytesIO()
    if form == "PNG":
        Image.new("L", (SIDE, SIDE), 200).save(out, form)
    else:
        Image.effect_noise((SIDE // 16, SIDE // 16), 60).resize((SIDE, SIDE)).save(out, form, quality=5)
    return out.getvalue()


def pictures_message(pictures: int, form: str, *, zipped: bool = False) -> bytes:
    """Return a message with pictures that no engine has seen before: bytes behind a picture change its digest."""
    files = [picture(form) + os.urandom(16) for _ in range(pictures)]
    media_type = b"application/zip" if zipped else b"image/" + form.lower().encode()
    if zipped:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for number, content in enumerate(files):
                archive.writestr(f"{number}.{form.lower()}", content)
        files = [out.getvalue()]
    part = b"--p\r\nContent-Type: %s\r\nContent-Transfer-Encoding: base64\r\n\r\n" % media_type
    body = b"".join(part + encodebytes(content).replace(b"\n", b"\r\n") for content in files)
    return HEAD + b"Content-Type: multipart/mixed; boundary=p\r\n\r\n" + body + b"--p--\r\n"


# Each attack: its messages, new for every round, and how many of them are in flight at once.
ATTACKS: dict[str, tuple[Callable[[], list[bytes]], int]] = {
    "bombs": (cache(lambda: [message for _, message in tripping_bombs()]), 1),
    "large pictures": (lambda: [pictures_message(8, "JPEG")], 6),
    "small files of large pictures": (lambda: [pictures_message(8, "PNG")], 6),
    "zipped pictures": (lambda: [pictures_message(8, "PNG", zipped=True)], 6),
}


def keep_attacking(
    attack: str, port: int, ca: Path, token: str, attacking: Event, over: Event, sent: object, busy: object
) -> None:
    """Submit one message after the other whenever it is time for the attack."""
    make, at_once = ATTACKS[attack]
    make()
    os.nice(19)  # a real attacker uses another machine

    async def keep_on() -> None:
        while not over.is_set():
            async with Caller(port, caller_context(ca), token, patience=DRAIN_SECONDS) as caller:
                for message in make():
                    while not attacking.is_set() and not over.is_set():
                        await asyncio.sleep(0.02)
                    if over.is_set():
                        return
                    busy.value += 1  # type: ignore[attr-defined]
                    try:
                        await caller.submit(message)
                    except NoAnswerError:
                        break  # an attacker tries again
                    finally:
                        busy.value -= 1  # type: ignore[attr-defined]
                    sent.value += 1  # type: ignore[attr-defined]

    async def attack_all() -> None:
        await asyncio.gather(*(keep_on() for _ in range(at_once)))

    asyncio.run(attack_all())
