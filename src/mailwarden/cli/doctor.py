"""`mailwarden doctor`: every dependency on one line, and what to do about the one that is wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import msgspec

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.analysis.teacher import Teacher
from mailwarden.cli.command import Command, add_config_option
from mailwarden.cli.config import check as check_configuration
from mailwarden.cli.database import said_by_driver
from mailwarden.cli.doctor_files import (
    Line,
    look_at_certificate,
    look_at_contents_key,
    look_at_folder,
    look_at_pepper,
)
from mailwarden.database.migrations import pending
from mailwarden.errors import MailwardenError, StorageUnavailable
from mailwarden.guard.app import build_engines
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig, Learning
from mailwarden.learning.contents import read_contents_key
from mailwarden.quarantine.opening import open_vault
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.tls import client_context
from mailwarden.settings.reader import read
from mailwarden.wire.guard import GUARD_STATUS_PATH, GuardStatus

PATIENCE = 5.0
VAULT_PATIENCE = 30.0  # a message of 50 MiB may be read
SAMPLES = 3  # held messages of which one must open


async def examine(folder: Path) -> AsyncIterator[Line]:
    """Yield a line for everything this host's processes depend on."""
    mistakes = check_configuration(folder)
    if mistakes:
        for mistake in mistakes:
            yield Line(False, "configuration", str(mistake), "mend it and run `mailwarden config check`")
        return
    yield Line(True, "configuration", f"{folder}: no mistakes")
    guard = read(folder / GUARD_PATH, GuardConfig) if (folder / GUARD_PATH).exists() else None
    abby = read(folder / ABBY_PATH, AbbyConfig) if (folder / ABBY_PATH).exists() else None
    for name, config in (("guard", guard), ("abby", abby)):
        if config is not None:
            tls = config.tls
            files = (folder / tls.certificate, folder / tls.key, folder / tls.ca)
            yield look_at_certificate(f"certificate {name}", *files)
            yield look_at_folder(f"spool {name}", folder / config.spool)
    if abby is not None:
        yield look_at_pepper(folder / abby.api_key_pepper)
    yield look_at_contents_key(folder, [config.contents.key for config in (guard, abby) if config is not None])
    for url in dict.fromkeys(config.database.url for config in (guard, abby) if config is not None):
        yield await _database(url)
    if guard is not None:
        async for line in _beside_guard(folder, guard):
            yield line
    if abby is not None:
        async for line in _processes(folder, abby):
            yield line


async def _beside_guard(folder: Path, guard: GuardConfig) -> AsyncIterator[Line]:
    yield look_at_folder("lists guard", folder / guard.lists.replica)
    async for line in _engines(guard):
        yield line
    if guard.scan_sources.smtp is not None:
        yield await _quarantine(folder, guard)
        yield await _next_hop("smtp.nextHop", guard.scan_sources.smtp.next_hop_address)
        if (released := guard.quarantine.release_address) is not None:
            yield await _next_hop("quarantine.releaseTo", released)
    if guard.learning is not None:
        async for line in _learning(guard.learning):
            yield line


async def _quarantine(folder: Path, guard: GuardConfig) -> Line:
    """Look at where held messages are kept: whether it can be used, and whether the key opens what is there."""
    name, settings = "quarantine guard", guard.quarantine
    if settings.bucket is None:
        line = look_at_folder(name, folder / settings.store)
        if not line.well or not (folder / settings.store).is_dir():
            return line
    try:
        vault = open_vault(settings, folder, read_contents_key(folder / guard.contents.key))
        async with asyncio.timeout(VAULT_PATIENCE):
            if settings.bucket is not None:
                line = Line(True, name, f"{settings.store}, vault {await vault.uid()}")
            closed = await _unopened(vault)
    except (MailwardenError, TimeoutError) as error:
        return Line(
            False, name, f"{settings.store}: {error or 'no answer'}", "set quarantine.store and what follows it"
        )
    if closed:
        seen = f"{settings.store}: held messages do not open with {guard.contents.key}"
        return Line(False, name, seen, "restore the key that they were sealed with; until then keep guard stopped")
    return line


async def _unopened(vault: Vault) -> bool:
    """Tell whether the first messages of the vault are there and not one of them opens."""
    closed = 0
    async with contextlib.aclosing(vault.bodies()) as bodies:
        async for body in bodies:
            if await vault.is_sound(body.tenant, body.address):
                return False
            closed += await vault.has(body.tenant, body.address)  # it may have been released since
            if closed == SAMPLES:
                break
    return closed > 0


async def _next_hop(key: str, address: tuple[str, int]) -> Line:
    """Ask for the greeting of whoever takes what is delivered."""
    remedy = f"start Postfix with the files of deploy/postfix, or set {key} in {GUARD_PATH}"
    place = f"{address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*address)
            with contextlib.closing(writer):
                greeting = (await reader.readline()).decode("ascii", "replace").strip()
                writer.write(b"QUIT\r\n")
                await writer.drain()
    except (OSError, ValueError) as error:
        return Line(False, key, f"{place}: {error or 'no answer'}", remedy)
    return Line(greeting.startswith("220"), key, f"{place}: {greeting[:100] or 'it hung up'}", remedy)


async def _database(url: str) -> Line:
    address = url.rpartition("@")[2]
    try:
        async with asyncio.timeout(PATIENCE):
            left = await pending(url)
    except StorageUnavailable as error:
        return Line(False, "database", f"{address}: {said_by_driver(error)}", "start PostgreSQL or set database.url")
    except MailwardenError as error:
        return Line(False, "database", f"{address}: {error.message}")
    except (OSError, TimeoutError) as error:
        return Line(False, "database", f"{address}: {error or 'no answer'}", "start PostgreSQL or set database.url")
    if left:
        seen = f"{address}: {len(left)} migration{'s' if len(left) > 1 else ''} missing"
        return Line(False, "database", seen, "run `mailwarden database migrate`")
    return Line(True, "database", f"{address}, tables up to date")


async def _engines(guard: GuardConfig) -> AsyncIterator[Line]:
    for engine in build_engines(guard):
        address = getattr(guard.engines, engine.name).address
        remedy = f"start it, or set engines.{engine.name}.address in {GUARD_PATH}"
        try:
            async with asyncio.timeout(PATIENCE):
                yield Line(True, engine.name, f"{await engine.check()} at {address}")
        except EngineFailed as error:
            yield Line(False, engine.name, error.sentence, remedy)
        except TimeoutError:
            yield Line(False, engine.name, f"{address}: no answer within {PATIENCE:.0f} s", remedy)


async def _learning(learning: Learning) -> AsyncIterator[Line]:
    """Ask those who learn: Rspamd's controller, and the Redis that it keeps statistics in."""
    teacher = Teacher(learning.controller, learning.password, learning.redis)
    asked = (
        ("learning.controller", learning.controller, teacher.check_controller),
        ("learning.redis", learning.redis.rpartition("@")[2], teacher.check_redis),
    )
    for key, address, check in asked:
        remedy = f"start it, or set {key} in {GUARD_PATH}; until then reports wait"
        try:
            async with asyncio.timeout(PATIENCE):
                yield Line(True, key, f"{await check()} at {address}")
        except EngineFailed as error:
            yield Line(False, key, error.sentence, remedy)
        except TimeoutError:
            yield Line(False, key, f"{address}: no answer within {PATIENCE:.0f} s", remedy)
    await teacher.close()


async def _processes(folder: Path, abby: AbbyConfig) -> AsyncIterator[Line]:
    try:
        context = client_context(folder / abby.tls.ca, folder / abby.tls.certificate, folder / abby.tls.key)
    except MailwardenError:
        return  # told with the certificate; without it nobody can be asked
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        for host in abby.service_providers.core.hosts:
            url = host.rstrip("/") + GUARD_STATUS_PATH
            yield await _ask(session, url, f"guard {host.split('//')[-1]}", _describe_guard, "mailwarden serve guard")
        host = "127.0.0.1" if abby.listen.host == "0.0.0.0" else abby.listen.host  # noqa: S104 - compared, not bound
        url = f"https://{host}:{abby.listen.port}/readyz"
        ready = (True, f"ready at {host}:{abby.listen.port}")
        yield await _ask(session, url, "abby", lambda _: ready, "mailwarden serve abby")


async def _ask(
    session: aiohttp.ClientSession, url: str, name: str, describe: Callable[[bytes], tuple[bool, str]], remedy: str
) -> Line:
    try:
        async with session.get(url) as response:
            body = await response.read()
            if response.status != 200:
                return Line(
                    False, name, f"{url} answered {response.status}", f"look at its log; start it by `{remedy}`"
                )
            well, seen = describe(body)
            return Line(well, name, seen, "look at its log, and call `mailwarden doctor` on its host")
    except aiohttp.ClientSSLError as error:
        return Line(False, name, f"{url}: {error}", "whoever listens there shows no certificate of this authority")
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        return Line(False, name, f"{url}: {error or 'no answer'}", f"start it by `{remedy}`")


def _describe_guard(body: bytes) -> tuple[bool, str]:
    status = msgspec.json.decode(body, type=GuardStatus)
    seen = f"{status.name} {status.version}, {status.in_processing} of {status.max_in_processing} in processing"
    lacks = [engine.name for engine in status.engines if not engine.up]
    lacks += [] if status.database_up else ["the database"]
    lacks += [] if status.lists_loaded else ["the lists"]
    return (False, f"{seen}; it lacks {', '.join(lacks)}") if lacks else (True, seen)


async def _print_all(folder: Path) -> int:
    wrong = 0
    async for line in examine(folder):
        print(line, flush=True)
        wrong += not line.well
    print(f"{wrong} of these need attention." if wrong else "All well.")
    return 1 if wrong else 0


COMMAND = Command(
    example="mailwarden doctor --config /etc/mailwarden",
    arguments=add_config_option,
    run=lambda arguments: asyncio.run(_print_all(arguments.config)),
)
