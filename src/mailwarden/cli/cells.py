"""`mailwarden cells`: makes a deployment a cell of a fleet, and shows where tenants are."""

import argparse
import asyncio

from mailwarden.cells.salts import adopt_salt
from mailwarden.cells.store import DirectoryStore
from mailwarden.cli.command import Command, add_action, add_config_option, print_json, table
from mailwarden.cli.database import unreachable
from mailwarden.cli.tenant_move import InstalledCell, read_cell
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    join = add_action(
        actions, "join", "use the fleet's salt of the sender history, before the first mail", "mailwarden cells join"
    )
    show = add_action(actions, "show", "show the tenants of the fleet and their cells", "mailwarden cells show")
    show.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    for action in (join, show):
        add_config_option(action)


def _run(options: argparse.Namespace) -> int:
    cell = read_cell(options.config)
    try:
        return asyncio.run(_join(cell) if options.action == "join" else _show(cell, as_json=options.output == "json"))
    except StorageUnavailable as error:
        raise unreachable(error) from None


async def _join(cell: InstalledCell) -> int:
    own, shared = Database(cell.url, 1, pooled=True), Database(cell.cells.directory.url, 1, pooled=True)
    try:
        print(await adopt_salt(own, DirectoryStore(shared)))
    finally:
        await own.close()
        await shared.close()
    return 0


async def _show(cell: InstalledCell, *, as_json: bool) -> int:
    shared = Database(cell.cells.directory.url, 1, pooled=True)
    try:
        changes = await DirectoryStore(shared).changes(None)
    finally:
        await shared.close()
    assert changes is not None
    domains: dict[str, list[str]] = {}
    for domain, tenant in changes.domains.items():
        domains.setdefault(str(tenant), []).append(domain)
    rows = [
        (str(uid), place.cell, str(place.version), ", ".join(sorted(domains.get(str(uid), []))) or "-")
        for uid, place in sorted(changes.tenants.items(), key=lambda each: (each[1].cell, each[0]))
    ]
    if as_json:
        names = ("tenantUid", "cell", "version", "domains")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print(table([("TENANT UID", "CELL", "VERSION", "DOMAINS"), *rows]))
    return 0


COMMAND = Command(example="mailwarden cells show", arguments=_arguments, run=_run)
