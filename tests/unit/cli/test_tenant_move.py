"""`mailwarden tenants move`: what it refuses before it connects to a database."""

from pathlib import Path
from typing import Literal

import pytest

from mailwarden.abby.config import AbbyConfig, CellDirectoryConfig, CellsConfig, Core, ServiceProviders
from mailwarden.cli.tenant_move import InstalledCell, check_history
from mailwarden.errors import CommandError
from mailwarden.history.clickhouse.settings import HistoryStoreSettings


def cell(name: str, store: Literal["postgresql", "clickhouse"]) -> InstalledCell:
    providers = ServiceProviders(core=Core(hosts=("https://127.0.0.1:9785",)))
    config = AbbyConfig(service_providers=providers, history=HistoryStoreSettings(store=store))
    return InstalledCell(Path(name), config, CellsConfig(name, CellDirectoryConfig("postgresql://127.0.0.1/x")))


def test_history_in_clickhouse_is_refused_with_the_way_to_move_it() -> None:
    own, other = cell("a", "postgresql"), cell("b", "clickhouse")
    check_history(own, own)
    for pair in ((own, other), (other, own)):
        with pytest.raises(
            CommandError, match=r"^b/.*abby\.yml has history\.store: clickhouse.*mailwarden history migrate"
        ):
            check_history(*pair)
