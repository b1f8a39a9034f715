"""A fleet of cells: each a product with its own database, and one database with their directory."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rig.engines import Engines, start_together
from rig.process import RigError
from rig.product import HOST, Overrides, Product, install_product

COMMAND_SECONDS = 120.0


@dataclass(frozen=True)
class Cell:
    """One cell with its tenants, and an API key for everything of each tenant."""

    name: str
    product: Product
    database: str
    tenants: Mapping[str, str]
    keys: Mapping[str, str]
    smtp_port: int

    @property
    def config(self) -> Path:
        return self.product.abby.folder

    def run(self, *words: str) -> str:
        """Run `mailwarden` with the configuration of this cell, and return its output."""
        return run_mailwarden(*words, "--config", str(self.config))


@dataclass(frozen=True)
class Fleet:
    cells: Mapping[str, Cell]
    directory: str

    def start(self) -> None:
        services = [service for cell in self.cells.values() for service in cell.product.services]
        waiting = [service for service in services if not service.running]
        start_together([service.start for service in waiting], waiting)

    def stop(self) -> None:
        for cell in self.cells.values():
            cell.product.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def install_fleet(
    folder: Path,
    engines: Engines,
    template: str,
    tenants: Mapping[str, Sequence[str]],
    *,
    next_hop: int,
    smtp_ports: Mapping[str, int],
    prefix: str = "fleet",
) -> Fleet:
    """Set up cells without starting them; `tenants` has the names of each cell's, with the domain NAME.example."""
    directory = engines.postgresql.create_database(f"{prefix}_directory", template=template)
    smtp: dict[str, Overrides] = {
        name: {"listen": {"port": port}, "nextHop": f"{HOST}:{next_hop}"} for name, port in smtp_ports.items()
    }
    products: dict[str, tuple[Product, str]] = {}
    for name in tenants:
        url = engines.postgresql.create_database(f"{prefix}_{name}", template=template)
        guard = {"scanSources": {"smtp": smtp[name]}} if name in smtp else {}
        products[name] = (install_product(folder / name, engines, url, guards=(guard,), one_process=True), url)
    share_secrets([product.abby.folder for product, _ in products.values()])
    cells = {}
    for name, (product, url) in products.items():
        connect(name, product, {other: those for other, (those, _) in products.items() if other != name}, directory)
        config = str(product.abby.folder)
        for tenant in tenants[name]:
            run_mailwarden("tenants", "create", tenant, "--domain", f"{tenant}.example", "--config", config)
        listed = json.loads(run_mailwarden("tenants", "list", "-o", "json", "--config", config))
        uids = {str(row["name"]): str(row["tenantUid"]) for row in listed}
        run_mailwarden("cells", "join", "--config", config)
        keys = {tenant: make_key(config, tenant) for tenant in tenants[name]}
        keys[""] = make_key(config, "")
        cells[name] = Cell(name, product, url, uids, keys, smtp_ports.get(name, 0))
    return Fleet(cells, directory)


def share_secrets(folders: Sequence[Path]) -> None:
    """Give all cells the pepper and the contents key of the first, and each pair of cells a secret."""
    for other in folders[1:]:
        for name in ("pepper", "contents"):
            shutil.copyfile(folders[0] / "secrets" / name, other / "secrets" / name)


def connect(name: str, product: Product, others: Mapping[str, Product], directory: str) -> None:
    """Write the part `cells` of abby.yml."""
    peers: dict[str, object] = {}
    for other, those in others.items():
        path = product.abby.folder / "secrets" / f"cell-{other}"
        twin = those.abby.folder / "secrets" / f"cell-{name}"
        path.write_text(twin.read_text("ascii") if twin.exists() else secrets.token_hex(32), "ascii")
        path.chmod(0o600)
        peers[other] = {"url": those.url, "ca": str(those.ca), "secret": f"secrets/cell-{other}"}
    product.abby.configure({"cells": {"name": name, "directory": {"url": directory}, "peers": peers}})
    product.abby.configure({"listsRateLimit": 1_000_000})


def make_key(config: str, tenant: str) -> str:
    """Make an API key with every scope for a tenant, "" for the deployment."""
    scopes = ("lists:read", "lists:write", "messages:submit", "messages:read", "quarantine:read", "quarantine:manage")
    words = [word for scope in scopes for word in ("--scope", scope)]
    words += ["--tenant", tenant] if tenant else ["--global"]
    made = run_mailwarden("keys", "create", tenant or "deployment", *words, "-o", "json", "--config", config)
    return str(json.loads(made)["key"])


def run_mailwarden(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mailwarden", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    if done.returncode != 0:
        raise RigError(f"`mailwarden {' '.join(words)}` ended with code {done.returncode}\n{done.stderr}")
    return done.stdout
