"""The status: the colour of the message queue, the health check, and the deployment as the console shows it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

import msgspec
from aiohttp import web

from mailwarden.abby.reload import AbbyReload
from mailwarden.access.callers import Caller
from mailwarden.access.endpoints import Endpoint
from mailwarden.access.permissions import DEFAULT_PERMISSIONS, ApiPermission
from mailwarden.console.services import GuardView, StatusView, TokenView
from mailwarden.database.pool import Database
from mailwarden.hop.guards import GuardWatch
from mailwarden.hop.records import GuardStatus
from mailwarden.serving.http_app import Call
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.metrics import CONTENT_TYPE, Metrics
from mailwarden.wire.scanning import SystemStatus

BUSY = 0.8
MEMORY_SECONDS = 10.0
RECOVERED = "The cause was removed some seconds ago."


class Colour(IntEnum):
    """Colours from good to bad; the worst of several is the maximum."""

    GREEN = 0
    YELLOW = 1
    RED = 2


def colour(guards: Sequence[GuardStatus | None], *, database_up: bool) -> Colour:
    """Return the current colour; None is an unreachable guard.

    A guard that is stopping or does not scan counts as unreachable.
    """
    usable = [guard for guard in guards if guard is not None and guard.scanning_enabled and not guard.stopping]
    if not usable or all(guard.in_processing >= guard.max_in_processing for guard in usable):
        return Colour.RED
    if any(all(name in down_engines(guard) for guard in usable) for name in down_engines(usable[0])):
        return Colour.RED
    taken = sum(guard.in_processing for guard in usable) / sum(guard.max_in_processing for guard in usable)
    calm = len(usable) == len(guards) and taken < BUSY
    healthy = database_up and all(
        guard.database_up and guard.lists_loaded and not down_engines(guard) for guard in usable
    )
    return Colour.GREEN if calm and healthy else Colour.YELLOW


def causes(guards: Sequence[GuardStatus | None], *, database_up: bool) -> Iterator[str]:
    """Yield a sentence for each cause of a colour other than GREEN, the worst first.

    The sentences are for users of every tenant: they name no guard and no load.
    """
    usable = [guard for guard in guards if guard is not None and guard.scanning_enabled and not guard.stopping]
    if not usable:
        yield "No guard scans messages."
        return
    engines = sorted(set[str]().union(*map(down_engines, usable)), key=str.lower)
    for engine in engines:
        everywhere = all(engine in down_engines(guard) for guard in usable)
        yield f"The engine {engine} is down{'' if everywhere else ' on some guards'}."
    if all(guard.in_processing >= guard.max_in_processing for guard in usable):
        yield "Every guard is at its maximum of messages."
    elif sum(guard.in_processing for guard in usable) >= BUSY * sum(guard.max_in_processing for guard in usable):
        yield "The guards are busy."
    if len(usable) < len(guards):
        yield "Some guards do not answer."
    if not database_up or not all(guard.database_up for guard in usable):
        yield "The database does not answer."
    if not all(guard.lists_loaded for guard in usable):
        yield "Some guards have not loaded the lists."


def down_engines(guard: GuardStatus) -> set[str]:
    return {engine.name for engine in guard.engines if engine.required and not engine.up}


class ColourMemory:
    """Shows the worst colour of the last ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_seen: dict[Colour, float] = {}

    def show(self, now_seen: Colour) -> Colour:
        now = self._clock()
        self._last_seen[now_seen] = now
        return max(
            seen for seen, moment in self._last_seen.items() if seen == now_seen or now - moment < MEMORY_SECONDS
        )


class Status:
    def __init__(self, watch: GuardWatch, database_up: Callable[[], bool], memory: ColourMemory) -> None:
        self._watch = watch
        self._database_up = database_up
        self._memory = memory

    def observe(self) -> Colour:
        """Record the colour after each round of the guards' status."""
        return self._memory.show(colour(self._watch.statuses, database_up=self._database_up()))

    def view(self) -> StatusView:
        """Return the last known colour and its causes; the colour outlasts its causes by some seconds."""
        shown = self.observe()
        reported_causes = tuple(causes(self._watch.statuses, database_up=self._database_up()))
        return StatusView(shown.name, reported_causes or (() if shown is Colour.GREEN else (RECOVERED,)))

    async def show(self, call: Call, caller: Caller) -> web.StreamResponse:
        await self._watch.look()
        status = SystemStatus(self.observe().name)
        return web.Response(body=msgspec.json.encode(status), content_type="application/json")


class Health:
    def __init__(self, is_ready: Callable[[], bool], metrics: Metrics) -> None:
        self._is_ready = is_ready
        self._metrics = metrics

    async def show_metrics(self, call: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def show_alive(self, call: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def show_ready(self, call: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(text="ok\n") if self._is_ready() else web.Response(status=503, text="not ready\n")


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/admin/status", ApiPermission.STATUS, Status.show, "getStatus",
        "Request the system status.",
        result=SystemStatus, quiet=True,
    ),
)  # fmt: skip
HEALTH_ENDPOINTS = (
    Endpoint(
        "GET", "/metrics", ApiPermission.METRICS, Health.show_metrics, "getMetrics",
        "Show the figures of this process.",
        media_type="text/plain", quiet=True,
    ),
    Endpoint(
        "GET", "/healthz", None, Health.show_alive, "getHealth",
        "Return whether the process is alive.",
        media_type="text/plain", quiet=True,
    ),
    Endpoint(
        "GET", "/readyz", None, Health.show_ready, "getReadiness",
        "Return whether the process is ready.",
        media_type="text/plain", quiet=True,
    ),
)  # fmt: skip


class AbbyDeployment:
    """Implements the console's `Deployment` with this abby's data."""

    def __init__(self, reload: AbbyReload, watch: GuardWatch, status: Status, database: Database) -> None:
        self._watch = watch
        self._status = status
        self._database = database
        self._reload = reload

    async def colour(self) -> str:
        await self._watch.look()
        return self._status.observe().name

    def status(self) -> StatusView:
        return self._status.view()

    def guards(self) -> Sequence[GuardView]:
        return [GuardView(guard.name, guard.status) for guard in self._watch.guards]

    def database_up(self) -> bool:
        return self._database.up

    def tokens(self) -> Sequence[TokenView]:
        return [
            TokenView(token.name, token.permissions or DEFAULT_PERMISSIONS)
            for token in self._reload.config.static_api_tokens
        ]

    async def configurations(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        guards = self._watch.guards
        settings = await asyncio.gather(*(self._watch.configuration_of(guard) for guard in guards))
        return [
            ("abby", self._reload.settings),
            *((f"guard {g.name}", s) for g, s in zip(guards, settings, strict=True)),
        ]
