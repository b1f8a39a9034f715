"""`mailwarden tenants move`: moves a tenant to another cell, finishes or aborts a move."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg
from msgspec import Struct

from mailwarden.abby.config import PATH, AbbyConfig, CellsConfig
from mailwarden.cells.move import CellAccess, Moved, TenantMove
from mailwarden.cells.store import DirectoryStore
from mailwarden.cli.command import add_config_option, operator
from mailwarden.cli.database import find_tenant, unreachable
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.quarantine.vault import open_vault
from mailwarden.serving.spool import prepare_spool
from mailwarden.settings.reader import read

T = TypeVar("T")


class InstalledCell(Struct, frozen=True):
    """The configuration of abby of one cell, which is on this host."""

    folder: Path
    config: AbbyConfig
    cells: CellsConfig

    @property
    def url(self) -> str:
        return self.config.database.direct_url or self.config.database.url

    def access(self, clickhouse: Clickhouse | None) -> CellAccess:
        ring = read_ring(self.folder / self.config.contents.key, "contents.key")
        vault = open_vault(self.config.quarantine, self.folder, ring)
        spool = prepare_spool(self.folder / self.config.spool)
        return CellAccess(self.cells.name, self.url, vault, spool, clickhouse)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[CellAccess]:
        clickhouse = open_clickhouse(self.config.history, self.folder)
        try:
            yield self.access(clickhouse)
        finally:
            if clickhouse is not None:
                await clickhouse.close()


def add_move_arguments(move: argparse.ArgumentParser) -> None:
    move.add_argument("name", metavar="TENANT", help="name or UUID of the tenant")
    move.add_argument("--to", required=True, metavar="CELL", help="name of the other cell")
    move.add_argument(
        "--target", required=True, type=Path, metavar="FOLDER", help="configuration folder of the other cell's abby"
    )
    ends = move.add_mutually_exclusive_group()
    ends.add_argument(
        "--finish", action="store_true", help="let late rows of history follow, and remove the rest of the tenant here"
    )
    ends.add_argument("--abort", action="store_true", help="keep the tenant here, if it was not switched yet")
    add_config_option(move)


def run_move(options: argparse.Namespace) -> int:
    source, target = read_cell(options.config), read_cell(options.target)
    if target.cells.name != options.to:
        raise CommandError(f"{options.target} is the configuration of the cell `{target.cells.name}`.")
    if source.cells.name == target.cells.name:
        raise CommandError(f"The tenant is in the cell `{options.to}` already: --config and --target are one cell.")
    if source.cells.directory.url != target.cells.directory.url:
        raise CommandError("The cells have different directories: see cells.directory.url in both abby.yml.")
    check_secrets(source, target)

    async def work(move: TenantMove) -> str:
        if options.finish:
            number = await move.finish()
            return f"finished: {number:,} rows of history were here; nothing of the tenant is left but its name"
        if options.abort:
            await move.abort()
            return f"aborted: the tenant stays in the cell `{source.cells.name}`"
        return _summary(options, await move.run(operator()))

    print(with_move(source, target, options.name, work))
    return 0


def _summary(options: argparse.Namespace, moved: Moved) -> str:
    pause = "the tenant had moved before" if moved.pause is None else f"changes paused for {moved.pause:.2f} s"
    return (
        f"moved {options.name} to the cell `{options.to}`: {pause}, {moved.held:,} held messages, "
        f"{moved.history:,} rows of history\n"
        "When no guard of this cell has rows in its journal any more, run the command again with --finish."
    )


def with_move(source: InstalledCell, target: InstalledCell, name: str, work: Callable[[TenantMove], Awaitable[T]]) -> T:
    """Run the work on a move of the named tenant; errors of a database become sentences."""

    async def run() -> T:
        own, shared = Database(source.url, 1, pooled=True), Database(source.cells.directory.url, 1, pooled=True)
        try:
            tenant = await find_tenant(own, name)
            async with source.opened() as a, target.opened() as b:
                return await work(TenantMove(a, b, DirectoryStore(shared), tenant.uid, _report))
        finally:
            await own.close()
            await shared.close()

    try:
        return asyncio.run(run())
    except StorageUnavailable as error:
        raise unreachable(error) from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ExceptionGroup) as error:
        raise CommandError(f"The move stopped: {error}. Run the same command again: it continues.") from None


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def read_cell(folder: Path) -> InstalledCell:
    config = read(folder / PATH, AbbyConfig)
    if config.cells is None:
        raise CommandError(f"{folder / PATH} has no part `cells`: this deployment is no cell of a fleet.")
    return InstalledCell(folder.resolve(), config, config.cells)


def check_secrets(source: InstalledCell, target: InstalledCell) -> None:
    """Raise unless the other cell has the keys of this one: API keys, TOTP secrets and stored contents need them."""
    for setting, files in (
        ("apiKeyPepper", [each.folder / each.config.api_key_pepper for each in (source, target)]),
        ("contents.key", [each.folder / each.config.contents.key for each in (source, target)]),
    ):
        own, other = (read_ring(path, setting) for path in files)
        known = {key.key_id for key in other.keys}
        if missing := [key.name for key in own.keys if key.key_id not in known]:
            raise CommandError(
                f"{setting}: {files[1]} lacks the key {missing[0]}. Copy that line from {files[0]}: without it the "
                "other cell cannot read what the tenant brings."
            )
