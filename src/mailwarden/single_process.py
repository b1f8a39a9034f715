"""Runs abby and guard in one process on one host: abby hands messages to guard by a call instead of HTTPS.

Both keep their configuration, listener, metrics, health checks and log lines. A stop ends abby first, so that guard
finishes every message that abby has accepted.
"""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import uvloop

from mailwarden.abby import app as abby
from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.errors import ConfigurationError
from mailwarden.guard import app as guard
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.context import PROGRAM as GUARD
from mailwarden.serving.server import serve_until_stopped
from mailwarden.settings.reader import read
from mailwarden.telemetry.logs import logging_as, start_logging
from mailwarden.telemetry.memory import tune_gc
from mailwarden.telemetry.self_tests import BASIC, PASSWORDS, require_known_answers

T = TypeVar("T")


def run_all(folder: Path) -> int:
    """Run abby and guard with the configuration in the folder until SIGTERM; return the exit code."""
    uvloop.run(serve_all(folder.resolve()))
    return 0


async def serve_all(folder: Path) -> None:
    """Serve both until SIGTERM or SIGINT."""
    abby_config, guard_config = read(folder / ABBY_PATH, AbbyConfig), guard.read_config(folder)
    address = own_address(abby_config.service_providers.core.hosts, guard_config.listen.port)
    start_logging(abby.PROGRAM, abby_config.log.level, {GUARD: guard_config.log.level})
    require_known_answers("Mailwarden", BASIC, CRYPTOGRAPHY, PASSWORDS)
    async with (
        _logging_as(GUARD, guard.open_service(guard_config, folder)) as (guard_service, local),
        _logging_as(abby.PROGRAM, abby.open_service(abby_config, folder, {address: local})) as abby_service,
    ):
        tune_gc()
        await serve_until_stopped(guard_service, abby_service)


@asynccontextmanager
async def _logging_as(program: str, opening: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Name the program in the log lines of its start and its stop, and of the tasks that it starts."""
    with logging_as(program):
        opened = await opening.__aenter__()
    try:
        yield opened
    finally:
        with logging_as(program):
            await opening.__aexit__(None, None, None)


def own_address(hosts: Sequence[str], port: int) -> str:
    """Return the address of this host's guard among abby's guards."""
    for host in hosts:
        parts = urlsplit(host)
        if (parts.port or 443) == port and _is_own(parts.hostname or ""):
            return host
    raise ConfigurationError(
        f"serviceProviders.core.hosts in {ABBY_PATH} does not have the guard of this host: add https://127.0.0.1:{port}"
        f" ({port} is listen.port in {GUARD_PATH}), or run `mailwarden serve abby` and `mailwarden serve guard`."
    )


def _is_own(name: str) -> bool:
    """Return whether a name or an address is one of this host: it can be bound."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: tuple[object, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
