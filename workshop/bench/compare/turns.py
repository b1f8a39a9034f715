"""Both versions by turns: the same messages, answers compared, CPU counted."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workshop.bench.compare.answers import Answer, Difference
from workshop.bench.compare.figures import ENGINES, PRODUCT, Turn, Used, ratio_of
from workshop.bench.compare.messages import Message
from workshop.bench.compare.ways import Checkv2, Https, Reply, Smtp, Way, send_all
from workshop.bench.cpu import Processes, cpu_seconds

SETTLE = 0.3  # seconds after the last answer, in which its row of history is written


@dataclass(frozen=True, slots=True)
class Version:
    """One version: its ways in, and its processes."""

    name: str
    https: Https
    smtp: Smtp
    checkv2: Checkv2
    processes: Processes
    engines: frozenset[str]  # the names of their processes

    @property
    def ways(self) -> tuple[Way, ...]:
        return (self.https, self.smtp, self.checkv2)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of processes that are counted, the sum of the product's own first."""
        shared = (*self.engines, "postgresql")
        return (PRODUCT, *(name for name in self.processes.names if name not in shared), "postgresql", ENGINES)

    async def run(self, way: Way, messages: Sequence[Message]) -> tuple[list[Reply], Used]:
        """Send the messages, and return the replies and the CPU milliseconds of a message."""
        before = cpu_seconds(self.processes)
        replies = await send_all(way, messages)
        await asyncio.sleep(SETTLE)
        after = cpu_seconds(self.processes)
        each = {name: (after[name] - before[name]) * 1000 / len(messages) for name in after}
        engines = sum(each.pop(name) for name in self.engines)
        product = sum(used for name, used in each.items() if name != "postgresql")
        return replies, each | {PRODUCT: product, ENGINES: engines}

    async def answers(self, replies: Sequence[Reply]) -> list[Answer]:
        """Return all that the version says about messages, with the reasons in its history."""
        found = await asyncio.gather(*(self.https.explain(reply.ggrid) for reply in replies if reply.ggrid))
        explanations = iter(found)
        return [{**reply.said, **(next(explanations) if reply.ggrid else {})} for reply in replies]


@dataclass(slots=True)
class Comparison:
    """The turns of all ways, and the differences."""

    base: Version
    present: Version
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    answers: int = 0

    async def run(self, messages: Sequence[Message], size: int) -> None:
        """Send all messages in turns of this size; the version that goes first alternates."""
        began = time.monotonic()
        starts = range(0, len(messages), size)
        for number, start in enumerate(starts, 1):
            for position in range(len(self.base.ways)):
                await self._turn(position, messages[start : start + size], swapped=(number + position) % 2 == 0)
            passed = time.monotonic() - began
            print(
                f"turn {number} of {len(starts)}: {self.answers} answers, {len(self.differences)} differ,"
                f" CPU ratio {self.ratios()}, {passed / number * (len(starts) - number) / 60:.1f} min left",
                flush=True,
            )

    def ratios(self) -> str:
        """Return the ratio of the product's CPU by each way."""
        return ", ".join(f"{ratio_of(turns, PRODUCT)} by {way}" for way, turns in self.turns.items())

    async def _turn(self, position: int, messages: Sequence[Message], *, swapped: bool) -> None:
        order = (self.present, self.base) if swapped else (self.base, self.present)
        replies: dict[str, list[Reply]] = {}
        used: dict[str, Used] = {}
        for version in order:
            replies[version.name], used[version.name] = await version.run(version.ways[position], messages)
        way = self.base.ways[position].name
        self.turns.setdefault(way, []).append(Turn(used[self.base.name], used[self.present.name]))
        base, present = [await each.answers(replies[each.name]) for each in (self.base, self.present)]
        self.answers += len(messages)
        for message, one, other in zip(messages, base, present, strict=True):
            if one != other:
                await self._ask_again(message, position)

    async def _ask_again(self, message: Message, position: int) -> None:
        """Count a difference only if it comes again: on a busy machine a deadline may pass in one version alone."""
        answers: Mapping[str, Answer] = {
            version.name: (await version.answers([await version.ways[position].send(message)]))[0]
            for version in (self.base, self.present)
        }
        base, present = answers[self.base.name], answers[self.present.name]
        if base != present:
            self.differences.append(Difference(message.name, self.base.ways[position].name, base, present))
