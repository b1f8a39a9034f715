"""The check of `mailwarden doctor` for a cell of a fleet: the directory, the other cells, and moves that wait."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import aiohttp

from mailwarden.abby.cell_peers import read_secret
from mailwarden.abby.config import CellPeer
from mailwarden.access.tenants import TenantStore
from mailwarden.cells.store import DirectoryStore
from mailwarden.cli.doctor.report import Host, Line
from mailwarden.cli.doctor.stored import PATIENCE, read_stored
from mailwarden.database.pool import Database
from mailwarden.errors import ConfigurationError, MailwardenError
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import TenantState

_MOVING = (TenantState.DRAINING, TenantState.LEAVING, TenantState.ARRIVING)


async def check_cells(host: Host) -> AsyncIterator[Line]:
    """Report the directory, each other cell, and tenants whose move is not complete."""
    if host.abby is None or host.abby.cells is None:
        return
    settings = host.abby.cells
    yield await _directory(settings.directory.url)
    for name, peer in settings.peers.items():
        yield await _peer(host, name, peer)
    url = host.abby.database.url
    for tenant in await read_stored(url, lambda database: TenantStore(database).list(Scope.deployment())) or ():
        if tenant.state in _MOVING:
            seen = f"{tenant.state}, the other cell is `{tenant.other_cell}`"
            remedy = "if no move runs, run `mailwarden tenants move` again: it continues"
            yield Line(True, f"tenant {tenant.name}", seen, remedy, warning=True)


async def _directory(url: str) -> Line:
    database = Database(url, pool_size=1, pooled=True)
    try:
        async with asyncio.timeout(PATIENCE):
            changes = await DirectoryStore(database).changes(None)
    except (MailwardenError, OSError, TimeoutError) as error:
        remedy = "check cells.directory.url; abby uses its copy meanwhile"
        return Line(False, "directory of cells", str(error) or "no answer", remedy)
    finally:
        await database.close()
    tenants = changes.tenants if changes is not None else {}
    cells = len({place.cell for place in tenants.values()})
    return Line(True, "directory of cells", f"{len(tenants)} tenants in {cells} cells")


async def _peer(host: Host, name: str, peer: CellPeer) -> Line:
    title, remedy = f"cell {name}", f"check cells.peers.{name}: url, ca and secret, and the abby of that cell"
    try:
        read_secret(host.folder / peer.secret, f"cells.peers.{name}.secret")
        trust = ssl.create_default_context(cafile=str(host.folder / peer.ca) if peer.ca else None)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(f"{peer.url}/readyz", ssl=trust, allow_redirects=False) as response,
        ):
            well = response.status == 200
            return Line(well, title, f"{peer.url} answered {response.status}", "" if well else remedy)
    except (ConfigurationError, aiohttp.ClientError, OSError) as error:
        return Line(False, title, str(error) or type(error).__name__, remedy)
