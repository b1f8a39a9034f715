"""Files with the keys of a secret: a new key, and the replacement of a file.

`init` needs no more than this of the command `secrets`, which imports most of guard.
"""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from mailwarden.crypto.keyring import Key, ring_text
from mailwarden.errors import CommandError


def new_key() -> Key:
    """Return a key of 256 random bits with the date of today."""
    return Key.of(secrets.token_hex(32).encode(), made=today())


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def write_ring(path: Path, keys: list[Key]) -> None:
    """Replace a key ring file atomically, with the same owner and mode."""
    beside = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(
            f"{beside} exists: another command is at work, or was interrupted. If none is running, remove it."
        ) from None
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(ring_text(keys))
            if path.exists():
                before = path.stat()
                os.chown(beside, before.st_uid, before.st_gid)
                beside.chmod(before.st_mode & 0o7777)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
