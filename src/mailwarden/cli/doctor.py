"""`mailwarden doctor`: every dependency on one line, and what to do about the one that is wrong."""

import asyncio
import datetime
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
from cryptography import x509

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.access.key_text import read_pepper
from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.analysis.teacher import Teacher
from mailwarden.cli.command import Command, add_config_option
from mailwarden.cli.config import check as check_configuration
from mailwarden.database.migrations import pending
from mailwarden.errors import MailwardenError
from mailwarden.guard.app import build_engines
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig, Learning
from mailwarden.learning.contents import read_contents_key
from mailwarden.quarantine.opening import open_vault
from mailwarden.serving.tls import client_context
from mailwarden.settings.reader import read
from mailwarden.settings.shared import Database
from mailwarden.wire.guard import GUARD_STATUS_PATH, GuardStatus

WARN_DAYS = 30
MIN_FREE = 1024 * 1024 * 1024
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """One dependency: whether it is well, what was seen, and what to do if it is not."""

    well: bool
    name: str
    seen: str
    remedy: str = ""

    def __str__(self) -> str:
        first = f"{'ok  ' if self.well else 'FAIL'}  {self.name:<22} {self.seen}"
        return first if self.well or not self.remedy else f"{first}\n      {'':<22} -> {self.remedy}"


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
            yield _certificate(f"certificate {name}", folder / config.tls.certificate)
            yield _spool(f"spool {name}", folder / config.spool)
    if abby is not None:
        yield _pepper(folder / abby.api_key_pepper)
    yield _contents_key(folder, [config.contents.key for config in (guard, abby) if config is not None])
    yield await _database((guard or abby or GuardConfig()).database)
    if guard is not None:
        async for line in _beside_guard(folder, guard):
            yield line
    if abby is not None:
        async for line in _processes(folder, abby):
            yield line


async def _beside_guard(folder: Path, guard: GuardConfig) -> AsyncIterator[Line]:
    yield _spool("lists guard", folder / guard.lists.replica)
    async for line in _engines(guard):
        yield line
    if guard.scan_sources.smtp is not None:
        yield await _quarantine(folder, guard)
    if guard.learning is not None:
        async for line in _learning(guard.learning):
            yield line


def _certificate(name: str, path: Path) -> Line:
    remedy = "make new ones with `mailwarden init`, or renew them with your authority"
    try:
        expires = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        return Line(False, name, f"{path}: {error}", remedy)
    days = (expires - datetime.datetime.now(datetime.UTC)).days
    return Line(days > WARN_DAYS, name, f"valid for {days} days", remedy)


def _spool(name: str, folder: Path) -> Line:
    remedy = f"make {folder} writable for this user, with at least 1 GiB free"
    if not folder.is_dir():
        return Line(os.access(folder.parent, os.W_OK), name, f"{folder} is made at the start", remedy)
    free = shutil.disk_usage(folder).free
    well = os.access(folder, os.W_OK) and free > MIN_FREE
    return Line(well, name, f"{folder}, {free // 1024**3} GiB free", remedy)


def _pepper(path: Path) -> Line:
    try:
        read_pepper(path)
    except MailwardenError as error:
        return Line(False, "pepper of API keys", error.message, "restore it from your backup")
    return Line(True, "pepper of API keys", str(path))


def _contents_key(folder: Path, places: Sequence[str]) -> Line:
    """Look for the key that kept messages are sealed with; abby and guard must have the same."""
    name = "key of kept messages"
    try:
        keys = {read_contents_key(folder / place) for place in places}
    except MailwardenError as error:
        return Line(False, name, error.message, "restore it from your backup, or copy it from another host")
    if len(keys) > 1:
        return Line(False, name, " and ".join(places) + " differ", "give abby and every guard the same file")
    return Line(True, name, ", ".join(str(folder / place) for place in sorted(set(places))))


async def _quarantine(folder: Path, guard: GuardConfig) -> Line:
    """Look at where held messages are kept: whether a folder can be written to, or a store answers."""
    name, settings = "quarantine guard", guard.quarantine
    if settings.bucket is None:
        return _spool(name, folder / settings.store)
    try:
        vault = open_vault(settings, folder, read_contents_key(folder / guard.contents.key))
        return Line(True, name, f"{settings.store}, vault {await vault.uid()}")
    except MailwardenError as error:
        return Line(False, name, f"{settings.store}: {error.message}", "set quarantine.store, endpoint and credentials")


async def _database(database: Database) -> Line:
    address = database.url.rpartition("@")[2]
    try:
        async with asyncio.timeout(PATIENCE):
            left = await pending(database.url)
    except (MailwardenError, OSError, TimeoutError) as error:
        return Line(False, "database", f"{address}: {error or 'no answer'}", "start PostgreSQL or set database.url")
    if left:
        return Line(
            False, "database", f"{address}: {len(left)} migrations missing", "run `mailwarden database migrate`"
        )
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
    context = client_context(folder / abby.tls.ca, folder / abby.tls.certificate, folder / abby.tls.key)
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        for host in abby.service_providers.core.hosts:
            url = host.rstrip("/") + GUARD_STATUS_PATH
            yield await _ask(session, url, f"guard {host.split('//')[-1]}", _describe_guard, "mailwarden serve guard")
        host = "127.0.0.1" if abby.listen.host == "0.0.0.0" else abby.listen.host  # noqa: S104 - compared, not bound
        url = f"https://{host}:{abby.listen.port}/readyz"
        yield await _ask(session, url, "abby", lambda _: f"ready at {host}:{abby.listen.port}", "mailwarden serve abby")


async def _ask(
    session: aiohttp.ClientSession, url: str, name: str, describe: Callable[[bytes], str], remedy: str
) -> Line:
    try:
        async with session.get(url) as response:
            body = await response.read()
            if response.status != 200:
                return Line(
                    False, name, f"{url} answered {response.status}", f"look at its log; start it by `{remedy}`"
                )
            return Line(True, name, describe(body))
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        return Line(False, name, f"{url}: {error or 'no answer'}", f"start it by `{remedy}`")


def _describe_guard(body: bytes) -> str:
    status = msgspec.json.decode(body, type=GuardStatus)
    return f"{status.name} {status.version}, {status.in_processing} of {status.max_in_processing} in processing"


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
