"""`mailwarden backup`: writes database, held messages, secrets and configuration into one verified archive.

The snapshot of the database comes first, then the held messages that it refers to. A message that is deleted in
between is named in the manifest; one that arrives in between belongs to the next backup.
"""

import argparse
import asyncio
import os
import pwd
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from msgspec import Struct

from mailwarden import __version__
from mailwarden.cli.archive import (
    CONFIGURATION,
    DATABASE,
    OUTSIDE,
    VAULT,
    Archive,
    ArchiveWriter,
    Manifest,
    Owner,
)
from mailwarden.cli.command import Command, add_config_option
from mailwarden.cli.database import unreachable
from mailwarden.cli.installation import Installation, read_installation
from mailwarden.cli.progress import Progress
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.dump import Snapshot, dump, open_snapshot
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.quarantine.blob_store import OWNER, VAULT_UID, BlobStore
from mailwarden.quarantine.vault import Vault, blob_name, first_uid, open_blob_store

IN_MEMORY = 1 << 20  # of a held message while its size is not known yet
SHOWN_MISSING = 20


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="archive to write or to verify")
    parser.add_argument("--verify", action="store_true", help="check every digest of an existing archive")
    parser.add_argument(
        "--no-database",
        action="store_true",
        help="only this host's held messages, secrets and configuration; for further hosts of a deployment",
    )
    add_config_option(parser)


def _run(options: argparse.Namespace) -> int:
    if options.verify:
        return _verify(options.file)
    folder, file = options.config.resolve(), options.file.absolute()
    installation = read_installation(folder)
    _require_usable(file, installation)
    paths = [*_configuration(installation)]
    _require_readable([*paths, *installation.outside_files()])
    try:
        with _written_atomically(file) as (output, scratch):
            manifest = asyncio.run(_write(installation, paths, output, scratch, with_database=not options.no_database))
    except StorageUnavailable as error:
        raise unreachable(error) from None
    except OSError as error:
        raise CommandError(f"Cannot write the backup: {error.filename or file}: {error.strerror}.") from None
    _print_contents(file, manifest)
    return 0


def _verify(file: Path) -> int:
    with Archive(file) as archive, Progress("verifying", archive.size) as progress:
        manifest = archive.check(progress.advance)
    _print_contents(file, manifest)
    return 0


def _print_contents(file: Path, manifest: Manifest) -> None:
    schema = f", schema {manifest.migrations[-1]}" if manifest.migrations else ", without the database"
    print(f"{file}: intact; Mailwarden {manifest.version}, {manifest.made:%Y-%m-%d %H:%M} UTC{schema}")
    for name, count in manifest.counts.items():
        print(f"  {name:<32} {count:,}")
    for missing in manifest.missing[:SHOWN_MISSING]:
        print(f"  not included: {missing} (deleted while the backup ran)")
    if len(manifest.missing) > SHOWN_MISSING:
        print(f"  not included: {len(manifest.missing) - SHOWN_MISSING:,} further messages")


def _require_usable(file: Path, installation: Installation) -> None:
    if file.exists():
        raise CommandError(f"{file} exists. Choose another name.")
    if not file.parent.is_dir():
        raise CommandError(f"There is no folder {file.parent}.")
    for folder in (installation.folder, *installation.folders().values()):
        if file.parent.resolve().is_relative_to(folder.resolve()):
            raise CommandError(f"{file} is inside {folder}, which is backed up. Choose another folder.")


def _require_readable(paths: Sequence[Path]) -> None:
    """Name all that the caller may not read: a backup without it would not be complete."""
    refused = [str(path) for path in paths if not os.access(path, _needed(path), effective_ids=True)]
    if refused:
        user = pwd.getpwuid(os.geteuid()).pw_name
        raise CommandError(
            f"The user {user} may not read {', '.join(refused)}: the backup would not be complete. Run it as root."
        )


def _needed(path: Path) -> int:
    return os.R_OK | os.X_OK if path.is_dir() else os.R_OK


@contextmanager
def _written_atomically(file: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Yield a file that only its owner may read, and a folder beside it; the file gets its name if all is well."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as name:
        part = Path(name) / "part"
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w+b") as output:
            yield output, Path(name)
            with Archive(part) as archive:
                archive.check()
            try:
                os.link(part, file)  # unlike a rename, it replaces nothing
            except FileExistsError:
                raise CommandError(f"{file} exists. Choose another name.") from None
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Vault(Struct, frozen=True):
    blobs: BlobStore
    uid: UUID


async def _write(
    installation: Installation, paths: Sequence[Path], output: BinaryIO, scratch: Path, *, with_database: bool
) -> Manifest:
    writer = ArchiveWriter(output)
    vault = await _open_vault(installation)
    snapshot: Snapshot | None = None
    if with_database:
        async with open_snapshot(installation.direct_url, vault.uid) as snapshot:
            _report("database   dumping")
            dumped = scratch / "database"
            await dump(
                installation.direct_url, snapshot, dumped, lambda size: _report(f"database   {_megabytes(size)}")
            )
        with dumped.open("rb") as source:
            writer.add(DATABASE, source)
            _report(f"database   {_megabytes(dumped.stat().st_size)}, complete")
        dumped.unlink()
    stored, missing = await _add_vault(writer, vault, snapshot, scratch)
    owners = _add_configuration(writer, installation.folder, paths)
    outside = _add_outside(writer, installation)
    manifest = Manifest(
        version=__version__,
        made=datetime.now(UTC),
        digests=writer.digests,
        counts=_counts(snapshot, stored, len(owners), len(outside)),
        migrations=snapshot.migrations if snapshot is not None else (),
        owners=owners,
        folders={kind: Owner.of(path) for kind, path in installation.folders().items() if path.is_dir()},
        outside=outside,
        missing=tuple(missing),
    )
    writer.finish(manifest)
    return manifest


async def _open_vault(installation: Installation) -> _Vault:
    config = installation.guard or installation.abby
    assert config is not None
    ring = read_ring(installation.folder / config.contents.key, "contents.key")
    blobs = open_blob_store(installation.quarantine, installation.folder)
    return _Vault(blobs, await Vault(blobs, ring, first_uid(installation.quarantine)).uid())


async def _add_vault(
    writer: ArchiveWriter, vault: _Vault, snapshot: Snapshot | None, scratch: Path
) -> tuple[int, list[str]]:
    """Add the held messages of this vault; return their number, and those that are gone."""
    writer.add_bytes(VAULT + VAULT_UID, str(vault.uid).encode("ascii"))
    names = await _message_names(vault, snapshot)
    missing: list[str] = []
    with Progress("held messages", len(names)) as progress:
        for name in names:
            with tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(scratch)) as held:
                try:
                    async with aclosing(vault.blobs.get(name)) as pieces:
                        async for piece in pieces:
                            held.write(piece)
                except FileNotFoundError:
                    missing.append(name)
                else:
                    writer.add(VAULT + name, held)
            progress.advance(1)
    return len(names) - len(missing), missing


async def _message_names(vault: _Vault, snapshot: Snapshot | None) -> list[str]:
    if snapshot is not None:
        return sorted(blob_name(tenant, address) for tenant, address in snapshot.bodies)
    async with aclosing(vault.blobs.blobs()) as blobs:
        return sorted([blob.name async for blob in blobs if blob.name not in (VAULT_UID, OWNER)])


def _configuration(installation: Installation) -> Iterator[Path]:
    """Yield the folder of the configuration, its folders and its files, without state and spool."""
    apart = {path.resolve() for path in installation.folders().values()}
    yield installation.folder
    for place, folders, files in os.walk(installation.folder):
        for name in [*folders]:
            path = Path(place) / name
            if path.resolve() in apart:
                folders.remove(name)
            elif path.is_symlink():
                _report(f"not included: {path} (a link to a folder)")
            else:
                yield path
        for path in (Path(place) / name for name in sorted(files)):
            if stat.S_ISREG(path.stat().st_mode):
                yield path


def _add_configuration(writer: ArchiveWriter, folder: Path, paths: Sequence[Path]) -> dict[str, Owner]:
    """Add the files of the configuration folder; return the owners of files and folders."""
    owners: dict[str, Owner] = {}
    for path in paths:
        relative = path.relative_to(folder).as_posix()
        owners[relative] = Owner.of(path)
        if path.is_file():
            with path.open("rb") as source:
                writer.add(CONFIGURATION + relative, source)
    return owners


def _add_outside(writer: ArchiveWriter, installation: Installation) -> dict[str, str]:
    """Add the files that the configuration names elsewhere; return each member's path."""
    outside: dict[str, str] = {}
    for number, path in enumerate(installation.outside_files(), 1):
        member = f"{OUTSIDE}{number:04d}"
        with path.open("rb") as source:
            writer.add(member, source)
        outside[member] = str(path)
    return outside


def _counts(snapshot: Snapshot | None, stored: int, files: int, outside: int) -> dict[str, int]:
    counts = {"held messages with their bytes": stored, "configuration files and folders": files}
    if outside:
        counts["files outside the folder"] = outside
    if snapshot is None:
        return counts
    found = snapshot.counts
    rows = {
        "tenants": found["tenants"],
        "users": found["users"],
        "API keys": found["keys"],
        "list entries": found["entries"],
        "held messages": found["held"],
    }
    if found["elsewhere"]:
        rows["held in vaults of other hosts"] = found["elsewhere"]
    return {**rows, **counts}


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _megabytes(size: int) -> str:
    return f"{size / 1_048_576:,.1f} MiB"


COMMAND = Command(
    example="mailwarden backup /var/backups/mailwarden-2026-11-16.tar",
    arguments=_arguments,
    run=_run,
)
