"""Databases in the embedded ClickHouse of a test run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.clickhouse.schema import prepare
from workshop.rig.clickhouse import EmbeddedClickhouse


@asynccontextmanager
async def opened_history(server: EmbeddedClickhouse) -> AsyncIterator[Clickhouse]:
    """Open a database of its own with the table of history, and drop it afterwards."""
    name = f"test_{uuid4().hex}"
    client = Clickhouse(Target((server.address,), name))
    await prepare(client, replicated=False)
    try:
        yield client
    finally:
        await client.close()
        server.execute(f"DROP DATABASE {name}")
