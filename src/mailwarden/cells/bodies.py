"""The bytes of held messages, copied from the vault of one cell to that of another.

They are copied before the rows that point to them. Until the rows exist, the other cell may take bytes for orphans of
an earlier move and remove them. The move therefore looks at all of them again afterwards, under the lock of each body,
which a removal takes as well: from then on a removal finds the row.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.crypto.keyring import BrokenSeal
from mailwarden.quarantine.store import lock_body
from mailwarden.quarantine.vault import Vault

BATCH = 32  # bodies that are locked and looked at together
_BODIES = "SELECT DISTINCT address FROM quarantine WHERE tenant = $1 AND address IS NOT NULL"
_PRESENT = "UPDATE quarantine SET missing = false WHERE tenant = $1 AND vault = $2 AND address = $3 AND missing"
_ARRIVED = f"{_BODIES} AND vault = $2 ORDER BY address"


class BodyCopies:
    """The copies of one move; `source` and `target` are the vaults of the two cells."""

    def __init__(
        self, tenant: UUID, source: Vault, target: Vault, *, spool: Path, report: Callable[[str], None]
    ) -> None:
        self._tenant = tenant
        self._source = source
        self._target = target
        self._spool = spool
        self._report = report
        self._copied: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._copied)

    async def copy(self, a: asyncpg.Connection) -> None:
        """Copy the bytes of all held messages of the old cell that were not copied yet.

        Bytes that are there of an earlier move are written again: they may be old enough to be removed as orphans.
        """
        for row in await a.fetch(_BODIES, self._tenant):
            address = cast("bytes", row["address"])
            if address not in self._copied and await self._copy(address):
                self._copied.add(address)

    async def restore(self, b: asyncpg.Connection) -> int:
        """Copy bytes again that the new cell has removed before it had their rows; return their number.

        Their messages are not missing any more: a guard of the new cell may have looked for the bytes before.
        """
        vault = await self._target.uid()
        rows = await b.fetch(_ARRIVED, self._tenant, vault)
        addresses = [cast("bytes", row["address"]) for row in rows]
        restored = 0
        for start in range(0, len(addresses), BATCH):
            batch = addresses[start : start + BATCH]
            async with b.transaction():
                for address in batch:
                    await lock_body(b, address)
                found = await asyncio.gather(*(self._target.has(self._tenant, address) for address in batch))
                for address, exists in zip(batch, found, strict=True):
                    if not exists and await self._copy(address):
                        await b.execute(_PRESENT, self._tenant, vault, address)
                        restored += 1
        if restored:
            self._report(f"held messages: {restored:,} bodies copied again")
        return restored

    async def _copy(self, address: bytes) -> bool:
        """Copy the bytes of one message; each is verified, and encrypted with the other vault's key."""
        try:
            raw = await self._source.get(self._tenant, address, self._spool)
        except (FileNotFoundError, BrokenSeal) as error:
            self._report(f"a held message has no usable bytes in the old cell: {error}")
            return False
        try:
            await self._target.put_at(self._tenant, address, raw)
        finally:
            raw.close()
        return True
