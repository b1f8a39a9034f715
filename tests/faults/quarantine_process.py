"""A process that stores held messages and prints each one; tests kill it at any moment."""

import asyncio
import sys
from pathlib import Path
from uuid import UUID

from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import finished

KEY = KeyRing.of(b"k" * 64)


def message(number: int) -> bytes:
    """Return the message of a number; every tenth is large, and every third the same as the one before."""
    number -= number % 3 == 2
    return f"Subject: {number}\r\n\r\n".encode() + bytes([number % 251]) * (3_000_000 if number % 10 == 0 else 5_000)


async def keep_all(url: str, folder: Path, tenant: UUID, first: int) -> None:
    database = Database(url)
    writer = QuarantineWriter(Vault(FilesystemStore(folder), KEY), QuarantineStore(database), RetentionDays())
    turns = asyncio.Semaphore(4)

    async def keep(number: int) -> None:
        async with turns:
            raw = message(number)
            uid = await writer.hold(finished(tenant, raw=raw), Spooled.of(raw))
            sys.stdout.write(f"{number} {uid}\n")
            sys.stdout.flush()

    await asyncio.gather(*(keep(number) for number in range(first, first + 100_000)))


if __name__ == "__main__":
    asyncio.run(keep_all(sys.argv[1], Path(sys.argv[2]), UUID(sys.argv[3]), int(sys.argv[4])))
