"""The checks of `mailwarden doctor` that call a server: database, engines, quarantine, next hop, abby and guard."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.cli.command import shown
from mailwarden.cli.database import with_driver_error
from mailwarden.cli.doctor.host import look_at_folder, public_context, rejected_certificate
from mailwarden.cli.doctor.report import Host, Line, announce
from mailwarden.cli.doctor.stored import PATIENCE, read_stored
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.clock import MAX_DIFFERENCE
from mailwarden.database.migrations import pending, server_time
from mailwarden.engines.table import open_engines
from mailwarden.errors import CommandError, MailwardenError, StorageUnavailable
from mailwarden.event_delivery.model import State
from mailwarden.event_delivery.store import ReceiverStore
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.history.clickhouse.schema import check_table, engine_mistake, replica_state
from mailwarden.hop.records import GUARD_STATUS_PATH, GuardStatus
from mailwarden.model.scope import Scope
from mailwarden.quarantine.ownership import check_owner
from mailwarden.quarantine.retention import ALL
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.serving.tls import client_context

MAX_SKEW = 5.0  # seconds between this host's clock and the database's
VAULT_PATIENCE = 30.0  # reading a message of 50 MiB may take this long
SAMPLES = 3  # held messages; at least one of them must open


async def check_database(host: Host) -> AsyncIterator[Line]:
    for url in dict.fromkeys(config.database.url for _, config in host.configs):
        line = await _database(url)
        yield line
        if line.well:
            yield await _clock(url)


async def check_history_store(host: Host) -> AsyncIterator[Line]:
    """Check the table of history in ClickHouse, if that is configured, and that abby and guard name the same store."""
    name = "history store"
    if host.abby is not None and host.guard is not None:
        here, there = host.abby.history, host.guard.history
        same = here.store == there.store and here.clickhouse.database == there.clickhouse.database
        if not same:
            yield Line(
                False, name, "abby.yml and guard.yml name different stores", "set the same history.store in both"
            )
    for file, config in host.configs:
        try:
            clickhouse = open_clickhouse(config.history, host.folder)
        except MailwardenError as error:
            yield Line(False, f"{name} of {file}", error.message)
            continue
        if clickhouse is not None:
            yield await _clickhouse(f"{name} of {file}", clickhouse, replicated=config.history.clickhouse.replicated)


async def _clickhouse(name: str, clickhouse: Clickhouse, *, replicated: bool) -> Line:
    down, mistakes, late = [], [], []
    try:
        for url in clickhouse.target.urls:
            try:
                await clickhouse.ping(url)
                mistakes.append(await engine_mistake(clickhouse, url, replicated=replicated))
                late.append(await replica_state(clickhouse, url))
            except StorageUnavailable as error:
                down.append(f"{url} {with_driver_error(error)}")
        await check_table(clickhouse)
    except StorageUnavailable as error:
        return Line(False, name, with_driver_error(error), "start ClickHouse, or run `mailwarden history prepare`")
    finally:
        await clickhouse.close()
    if any(mistakes):
        return Line(False, name, " ".join(filter(None, mistakes)), "see history in ClickHouse in docs/operating.md")
    if any(late):
        seen = f"searches may miss the newest rows: {'; '.join(filter(None, late))}"
        return Line(False, name, seen, "repair the replica, or take it out of history.clickhouse.urls until then")
    if down:
        return Line(True, name, f"a replica is down: {'; '.join(down)}", "start it", warning=True)
    return Line(True, name, f"{len(clickhouse.target.urls)} addresses of ClickHouse answer, the table is up to date")


async def check_event_receivers(host: Host) -> AsyncIterator[Line]:
    """Report the receivers of events that are disabled, fail, or have lost events."""
    if host.abby is None:
        return
    url = host.abby.database.url
    for receiver in await read_stored(url, lambda database: ReceiverStore(database).list(Scope.deployment())) or ():
        name, remedy = f"event receiver {shown(receiver.name)}", "see `mailwarden receivers list`, then `test`"
        if receiver.is_paused:
            yield Line(True, name, "disabled by an administrator")
        elif receiver.state is State.DISABLED:
            yield Line(True, name, f"disabled. {shown(receiver.last_error)}", f"{remedy} and `enable`", warning=True)
        elif receiver.failing_since is not None:
            seen = f"failing since {receiver.failing_since:%Y-%m-%d %H:%M} UTC. {shown(receiver.last_error)}"
            yield Line(True, name, seen, remedy, warning=True)
        elif receiver.lost:
            yield Line(
                True, name, f"at most {receiver.lost} events were lost", "raise events.retentionDays", warning=True
            )
        else:
            yield Line(True, name, f"{receiver.delivered} events delivered")


async def check_engines(host: Host) -> AsyncIterator[Line]:
    """Check that every engine answers, and then its configuration: the engine's class has the checks."""
    if host.guard is None:
        return
    engines = open_engines(host.guard.engines)
    for engine in engines:
        place = f" at {engine.location}" if engine.location else ""
        try:
            async with asyncio.timeout(PATIENCE):
                yield Line(True, engine.name, f"{(await engine.check()).detail}{place}")
        except EngineFailed as error:
            yield Line(False, engine.name, str(error), engine.remedy)
        except TimeoutError:
            yield Line(False, engine.name, f"no answer{place} within {PATIENCE:.0f} s", engine.remedy)
    for engine in engines:
        async for each in engine.diagnose(announce):
            yield Line(each.well, each.name, each.seen, each.remedy)


async def check_smtp(host: Host) -> AsyncIterator[Line]:
    """Check the dependencies of mail over SMTP: the quarantine and the next hops."""
    if host.guard is None or host.guard.scan_sources.smtp is None:
        return
    yield await _quarantine(host.folder, host.guard)
    yield await _next_hop("smtp.nextHop", host.guard.scan_sources.smtp.next_hop_address)
    if (released := host.guard.quarantine.release_address) is not None:
        yield await _next_hop("quarantine.releaseTo", released)


async def check_processes(host: Host) -> AsyncIterator[Line]:
    """Check that abby, and each guard in its configuration, answers."""
    if host.abby is None:
        return
    folder, abby = host.folder, host.abby
    try:
        context = client_context(folder / abby.tls.ca, folder / abby.tls.certificate, folder / abby.tls.key)
        public = public_context(folder, abby.public_tls) if abby.public_tls is not None else None
    except MailwardenError:
        return  # check_certificates reports it
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        for guard in abby.service_providers.core.hosts:
            url = guard.rstrip("/") + GUARD_STATUS_PATH
            yield await _ask(session, url, f"guard {guard.split('//')[-1]}", _describe_guard, "mailwarden serve guard")
        everywhere = abby.listen.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        name = "127.0.0.1" if everywhere else abby.listen.host
        name = f"[{name}]" if ":" in name else name
        url = f"https://{name}:{abby.listen.port}/readyz"
        ready = (True, f"ready at {name}:{abby.listen.port}")
        yield await _ask(session, url, "abby", lambda _: ready, "mailwarden serve abby", context=public)


async def _database(url: str) -> Line:
    address = url.rpartition("@")[2]
    try:
        async with asyncio.timeout(PATIENCE):
            left = await pending(url)
    except StorageUnavailable as error:
        return Line(False, "database", f"{address}: {with_driver_error(error)}", "start PostgreSQL or set database.url")
    except MailwardenError as error:
        return Line(False, "database", f"{address}: {error.message}")
    except (OSError, TimeoutError) as error:
        return Line(False, "database", f"{address}: {error or 'no answer'}", "start PostgreSQL or set database.url")
    if left:
        seen = f"{address}: {len(left)} migration{'s' if len(left) > 1 else ''} missing"
        return Line(False, "database", seen, "run `mailwarden database migrate`")
    return Line(True, "database", f"{address}, tables up to date")


async def _clock(url: str) -> Line:
    """Compare this host's clock with the database's: certificates, links and retention depend on both."""
    try:
        async with asyncio.timeout(PATIENCE):
            began = time.time()
            there = await server_time(url)
            here = (began + time.time()) / 2
    except (OSError, TimeoutError, MailwardenError) as error:
        return Line(False, "clock", f"cannot read the database's clock: {error or 'no answer'}")
    off = here - there
    seen = f"{abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the database's"
    if abs(off) > MAX_DIFFERENCE.total_seconds():
        seen += "; guard and abby here delete no history, events or held messages"
    return Line(abs(off) <= MAX_SKEW, "clock", seen, "set the clocks of both hosts by NTP (`timedatectl set-ntp true`)")


async def _quarantine(folder: Path, guard: GuardConfig) -> Line:
    """Check the store of held messages: whether it is usable, and whether the key decrypts its messages."""
    name, settings = "quarantine guard", guard.quarantine
    if settings.bucket is None:
        line = look_at_folder(name, folder / settings.store)
        if not line.well or not (folder / settings.store).is_dir():
            return line
    try:
        vault = open_vault(settings, folder, read_ring(folder / guard.contents.key, "contents.key"))
        async with asyncio.timeout(VAULT_PATIENCE):
            if settings.bucket is not None:
                line = Line(True, name, f"{settings.store}, vault {await vault.uid()}")
            closed = await _unopened(vault)
            deployment = await read_stored(guard.database.url, lambda each: RetentionStore(each).deployment(ALL))
            if deployment is not None:
                await check_owner(vault, deployment)
    except CommandError as error:
        seen, _, remedy = error.message.partition(". Give ")
        return Line(False, name, seen, f"give {remedy}")
    except (MailwardenError, TimeoutError) as error:
        return Line(
            False, name, f"{settings.store}: {error or 'no answer'}", "set quarantine.store and what follows it"
        )
    if closed:
        seen = f"{settings.store}: held messages do not open with {guard.contents.key}"
        return Line(False, name, seen, "restore the key that they were sealed with; until then keep guard stopped")
    return line


async def _unopened(vault: Vault) -> bool:
    """Return whether the first messages of the vault exist and none of them opens."""
    closed = 0
    async with contextlib.aclosing(vault.bodies()) as bodies:
        async for body in bodies:
            if await vault.verifies(body.tenant, body.address):
                return False
            closed += await vault.has(body.tenant, body.address)  # it may have been released since
            if closed == SAMPLES:
                break
    return closed > 0


async def _next_hop(key: str, address: tuple[str, int]) -> Line:
    """Read the greeting of the next hop."""
    remedy = f"run `mailwarden engines install postfix-before-queue` and start Postfix, or set {key} in {GUARD_PATH}"
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


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    name: str,
    describe: Callable[[bytes], tuple[bool, str]],
    remedy: str,
    *,
    context: ssl.SSLContext | None = None,
) -> Line:
    try:
        async with session.get(url, ssl=context or True) as response:
            body = await response.read()
            if response.status == HTTPStatus.FORBIDDEN:
                return rejected_certificate(name, url)
            if response.status != 200:
                return Line(
                    False, name, f"{url} answered {response.status}", f"look at its log; start it by `{remedy}`"
                )
            well, seen = describe(body)
            return Line(well, name, seen, "look at its log, and call `mailwarden doctor` on its host")
    except aiohttp.ClientSSLError as error:
        remedy = "the listener shows another certificate than the one configured; after a renewal send it SIGHUP"
        return Line(
            False, name, f"{url}: {error}", remedy if context else "the listener shows no certificate of tls.ca"
        )
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        return Line(False, name, f"{url}: {error or 'no answer'}", f"start it by `{remedy}`")


def _describe_guard(body: bytes) -> tuple[bool, str]:
    status = msgspec.json.decode(body, type=GuardStatus)
    seen = f"{status.name} {status.version}, {status.in_processing} of {status.max_in_processing} in processing"
    seen += f", workers: {', '.join(status.worker_sandbox) or 'no sandbox'}"
    lacks = [engine.name for engine in status.engines if not engine.up]
    lacks += [] if status.database_up else ["the database"]
    lacks += [] if status.lists_loaded else ["the lists"]
    return (False, f"{seen}; it lacks {', '.join(lacks)}") if lacks else (True, seen)
