"""Runs the cases through the product: sets the lists, submits each message, and keeps the result."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from workshop.evasion.cases import Case
from workshop.evasion.payloads import BLOCKED_ENDING, LISTED_HOST
from workshop.rig.caller import Caller, caller_context
from workshop.rig.product import Overrides, Product
from workshop.torture.results import show_progress

GUARD: Overrides = {"log": {"level": "warning"}}
AT_ONCE = 4
PATIENCE = 120.0
_PROPAGATION = 2.5  # a committed change of a list acts on every guard within 2 s


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    status: int
    verdict: str
    decision: str
    tags: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether the payload passed as fully inspected and clean."""
        return self.status == 200 and self.verdict in {"clean", "bulk"}

    @property
    def kind(self) -> str:
        if self.passed:
            return "clean"
        return {"deliver": "warned", "undecided": "undecided"}.get(self.decision, "quarantined")

    def __str__(self) -> str:
        return f"{self.case.name}: {self.status} {self.verdict}/{self.decision} {' '.join(self.tags)}"


def block(product: Product) -> None:
    """Add the listed link and the listed file extension to the global lists."""
    folder = str(product.abby.folder)
    scopes = ("--scope", "lists:read", "--scope", "lists:write")
    made = json.loads(_run("keys", "create", "evasion", "--global", *scopes, "-o", "json", "--config", folder))
    for name, entry in (
        ("url-block", LISTED_HOST),
        ("url-block", f"*.{LISTED_HOST}"),
        ("attachment-block", BLOCKED_ENDING),
    ):
        _run("lists", "add", name, entry, "--config", folder, key=made["key"])
    time.sleep(_PROPAGATION)


def _run(*words: str, key: str = "") -> str:
    environment = {**os.environ, "MAILWARDEN_API_KEY": key}
    done = subprocess.run(
        [sys.executable, "-m", "mailwarden", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    return done.stdout


async def scan_all(product: Product, cases: Iterable[Case]) -> list[Outcome]:
    """Submit the cases, a few at once; the outcomes are in the order of the cases."""
    waiting = enumerate(cases)
    outcomes: dict[int, Outcome] = {}

    async def go_on() -> None:
        context = caller_context(product.ca)
        async with Caller(product.abby.port, context, product.token, patience=PATIENCE) as caller:
            for number, case in waiting:
                answer = await caller.submit(case.raw)
                record = answer.record
                tags = record.get("tags")
                outcomes[number] = Outcome(
                    case,
                    answer.status,
                    str(record.get("verdict", "")),
                    str(record.get("decision", record.get("error", ""))),
                    tuple(map(str, tags)) if isinstance(tags, list) else (),
                )
                show_progress(f"evasion {len(outcomes)} {case.name}")

    await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))
    return [outcomes[number] for number in sorted(outcomes)]
