"""`mailwarden restore`: puts an archive of `mailwarden backup` into an empty database and empty folders.

Every digest, the schema and the target are checked before the first change. The database is restored in one
transaction. The two configuration files are written last: no process can start with half of a backup.
"""

import argparse
import asyncio
import grp
import io
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from ruamel.yaml import YAML

from mailwarden.cli.archive import CONFIGURATION, DATABASE, VAULT, Archive, Manifest, Owner
from mailwarden.cli.command import Command, add_config_option
from mailwarden.cli.database import unreachable
from mailwarden.cli.installation import FILES, Installation, read_installation
from mailwarden.cli.progress import Progress
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.dump import count_processes, count_tables, drop_all, restore
from mailwarden.database.migrations import known_migrations, migrate
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.guard import config as guard
from mailwarden.quarantine.blob_store import OWNER, VAULT_UID, BlobStore
from mailwarden.quarantine.ownership import Deployment, claim, renew_deployment
from mailwarden.quarantine.vault import Vault, first_uid, open_blob_store


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="archive of `mailwarden backup`")
    parser.add_argument("--database-url", metavar="URL", help="another PostgreSQL database than the configured one")
    parser.add_argument("--state", type=Path, metavar="FOLDER", help="another folder for held messages and lists")
    parser.add_argument("--spool", type=Path, metavar="FOLDER", help="another folder for messages in processing")
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an existing configuration, and drop all tables of the target database first",
    )
    parser.add_argument(
        "--outside", action="store_true", help="also write configured files outside the configuration folder"
    )
    add_config_option(parser)


class _Plan(Struct, frozen=True):
    """A checked restore: the archive's manifest, and the installation that it makes."""

    manifest: Manifest
    installation: Installation
    settings: Mapping[str, bytes]  # the two configuration files as they will be written
    blobs: BlobStore | None  # the vault, if it can be opened before the configuration is written
    force: bool

    @property
    def has_database(self) -> bool:
        return DATABASE in self.manifest.digests


def _run(options: argparse.Namespace) -> int:
    with Archive(options.file) as archive:
        with Progress("verifying", archive.size) as progress:
            manifest = archive.check(progress.advance)
        _require_known_schema(manifest)
        try:
            with tempfile.TemporaryDirectory() as scratch:
                plan = _plan(options, archive, manifest, Path(scratch))
            asyncio.run(_restore(plan, archive))
            _write_outside(archive, manifest, wanted=options.outside)
        except StorageUnavailable as error:
            raise unreachable(error) from None
        except OSError as error:
            raise CommandError(f"Cannot write {error.filename}: {error.strerror}.") from None
    folder = plan.installation.folder
    print(f"Restored to {folder}. Check this host with: mailwarden doctor --config {folder}")
    print("Then start guard and abby. Further hosts: restore their own backup, or copy secrets/ and tls/ to them.")
    return 0


def _require_known_schema(manifest: Manifest) -> None:
    known = [migration.name for migration in known_migrations()]
    if [*manifest.migrations] != known[: len(manifest.migrations)]:
        newest = manifest.migrations[-1]
        raise CommandError(
            f"The backup was made by Mailwarden {manifest.version} with schema {newest}; this version knows up to "
            f"{known[-1]}. Install version {manifest.version} or newer. Nothing was changed."
        )


def _plan(options: argparse.Namespace, archive: Archive, manifest: Manifest, scratch: Path) -> _Plan:
    """Return the plan of a restore; raise CommandError if the target is not empty or the plan cannot succeed."""
    folder = options.config.resolve()
    settings = {
        path: _edited(b"".join(archive.read(CONFIGURATION + path, manifest)), path, options)
        for path in FILES
        if CONFIGURATION + path in manifest.digests
    }
    for path, text in settings.items():
        (scratch / path).parent.mkdir(parents=True)
        (scratch / path).write_bytes(text)
    installation = read_installation(folder, scratch)
    _require_owners(manifest)
    if not options.force and any((folder / path).exists() for path in FILES):
        raise CommandError(
            f"{folder} already has a configuration. Choose another folder with --config, or replace it with --force. "
            "Nothing was changed."
        )
    for name in _configuration_files(manifest):
        _require_inside(folder, folder / name)
    bucket = installation.quarantine.bucket is not None
    blobs = None if bucket else open_blob_store(installation.quarantine, folder)
    plan = _Plan(manifest, installation, settings, blobs, options.force)
    asyncio.run(_require_empty(plan, archive))
    return plan


def _edited(text: bytes, path: str, options: argparse.Namespace) -> bytes:
    """Return a configuration file with the database and folders of the options."""
    changes: dict[tuple[str, ...], str] = {}
    if options.database_url:
        changes["database", "url"] = options.database_url
    if options.state:
        changes["quarantine", "store"] = str(options.state.resolve() / "quarantine")
        if path == guard.PATH:
            changes["lists", "replica"] = str(options.state.resolve() / "lists")
            changes["journal", "folder"] = str(options.state.resolve() / "journal")
    if options.spool:
        changes[("spool",)] = str(options.spool.resolve())
    if not changes:
        return text
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 4_096
    document = yaml.load(text.decode("utf-8")) or {}
    for keys, value in changes.items():
        record = document
        for key in keys[:-1]:
            record = record.setdefault(key, {})
        if keys == ("database", "url") and "directUrl" in record:
            record["directUrl"] = value
        if keys == ("quarantine", "store") and str(record.get("store", "")).startswith("s3://"):
            continue
        record[keys[-1]] = value
    output = io.BytesIO()
    yaml.dump(document, output)
    return output.getvalue()


def _require_owners(manifest: Manifest) -> None:
    """Raise CommandError if this host lacks a user or group of the archive; only root can give files to others."""
    if os.geteuid() != 0:
        return
    for owner in {*manifest.owners.values(), *manifest.folders.values()}:
        for name, kind, look_up in ((owner.user, "user", _user), (owner.group, "group", _group)):
            try:
                look_up(name)
            except KeyError:
                raise CommandError(
                    f"This host has no {kind} `{name}`, which owns files of the backup. Create it first, for example: "
                    f"adduser --system --group --no-create-home {name}. Nothing was changed."
                ) from None


def _require_inside(folder: Path, path: Path) -> None:
    if not path.parent.resolve().is_relative_to(folder):
        raise CommandError(f"{path.parent} leads out of {folder} by a link. Remove the link. Nothing was changed.")


async def _require_empty(plan: _Plan, archive: Archive) -> None:
    url = plan.installation.direct_url
    if plan.has_database:
        if await count_processes(url):
            raise CommandError("abby or guard uses this database. Stop all of them first. Nothing was changed.")
        if not plan.force and (found := await count_tables(url)):
            raise CommandError(
                f"The database has {found} tables. Create an empty one and name it with --database-url, or replace "
                "the tables with --force. Nothing was changed."
            )
    if plan.blobs is not None and not plan.force and not await _is_same_vault(plan.blobs, plan.manifest, archive):
        raise CommandError(
            f"{plan.installation.folders()['vault']} has messages of another vault. Choose another folder with "
            "--state, or --force. Nothing was changed."
        )


async def _is_same_vault(blobs: BlobStore, manifest: Manifest, archive: Archive) -> bool:
    """Return whether a store is empty, or has the uid of the archive: its messages then stay as they are."""
    try:
        async with aclosing(blobs.get(VAULT_UID)) as pieces:
            found = b"".join([piece async for piece in pieces])
    except FileNotFoundError:
        async with aclosing(blobs.blobs()) as stored:
            return not [blob async for blob in stored if blob.name != OWNER]
    return found == b"".join(archive.read(VAULT + VAULT_UID, manifest))


async def _restore(plan: _Plan, archive: Archive) -> None:
    installation, manifest, deployment = plan.installation, plan.manifest, None
    if plan.has_database:
        if plan.force:
            await drop_all(installation.direct_url)
        _report("database   restoring")
        await restore(installation.direct_url, archive.read(DATABASE, manifest))
        for name in await migrate(installation.direct_url):
            _report(f"database   applied {name}")
        deployment = await _renew_deployment(installation.direct_url)
    _make_folders(plan)
    with _configuration_folders(plan):
        others = [path for path in _configuration_files(manifest) if path not in plan.settings]
        _write_configuration(plan, archive, others)
        await _write_vault(plan, archive, deployment)
        _write_configuration(plan, archive, [*plan.settings])


async def _renew_deployment(url: str) -> Deployment:
    """Give the restored database another id than that of the backup, whose vault may still be in use."""
    database = Database(url, 1)
    try:
        async with database.connection() as connection:
            return await renew_deployment(connection)
    finally:
        await database.close()


def _make_folders(plan: _Plan) -> None:
    for kind, path in plan.installation.folders().items():
        owner = plan.manifest.folders.get(kind)
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o700)
            if owner is not None:
                _give(each, owner)


async def _write_vault(plan: _Plan, archive: Archive, deployment: Deployment | None) -> None:
    """Write the held messages, and give those of a folder to the owner of the vault.

    The new deployment claims an empty vault. One that has messages may be in use: the operator decides.
    """
    installation = plan.installation
    blobs = plan.blobs or open_blob_store(installation.quarantine, installation.folder)
    if deployment is not None:
        # No message is read or written with this key.
        vault = Vault(blobs, KeyRing.of(os.urandom(64)), first_uid(installation.quarantine))
        try:
            await claim(vault, deployment)
        except CommandError as error:
            _report(f"quarantine {error.message}")
    names = [name for name in plan.manifest.digests if name.startswith(VAULT)]
    with Progress("held messages", len(names)) as progress:
        for name in names:
            await blobs.put(name.removeprefix(VAULT), archive.read(name, plan.manifest))
            progress.advance(1)
    owner, place = plan.manifest.folders.get("vault"), installation.folders().get("vault")
    if place is not None and owner is not None and os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, _user(owner.user), _group(owner.group), follow_symlinks=False)


@contextmanager
def _configuration_folders(plan: _Plan) -> Iterator[None]:
    """Create the configuration folder and its folders; they get their owners at the end."""
    folder, owners = plan.installation.folder, plan.manifest.owners
    files = {*_configuration_files(plan.manifest)}
    folders = [relative for relative in sorted(owners) if relative not in files]
    folder.mkdir(parents=True, exist_ok=True)
    for relative in folders:
        _require_inside(folder, folder / relative / "file")
        (folder / relative).mkdir(mode=0o700, parents=True, exist_ok=True)
    yield
    for relative in reversed(folders):
        _give(folder / relative, owners[relative])


def _write_configuration(plan: _Plan, archive: Archive, names: Sequence[str]) -> None:
    for relative in names:
        given = plan.settings.get(relative)
        pieces = archive.read(CONFIGURATION + relative, plan.manifest) if given is None else iter([given])
        _write_file(plan.installation.folder / relative, pieces, plan.manifest.owners.get(relative))


def _configuration_files(manifest: Manifest) -> list[str]:
    return [name.removeprefix(CONFIGURATION) for name in manifest.digests if name.startswith(CONFIGURATION)]


def _write_outside(archive: Archive, manifest: Manifest, *, wanted: bool) -> None:
    """Write the files outside the configuration folder; without the option, name those that differ."""
    for member, target in manifest.outside.items():
        path = Path(target)
        contents = b"".join(archive.read(member, manifest))
        if path.is_file() and path.read_bytes() == contents:
            continue
        if not wanted:
            _report(f"not restored: {path}, which the configuration names. Add --outside, or copy it by hand.")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_file(path, iter([contents]), None)


def _write_file(path: Path, pieces: Iterator[bytes], owner: Owner | None) -> None:
    """Write a file atomically; only its owner can read it until it has its final permissions."""
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if owner is not None:
            _give(beside, owner)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _give(path: Path, owner: Owner) -> None:
    if os.geteuid() == 0:
        os.chown(path, _user(owner.user), _group(owner.group))
    path.chmod(owner.mode & 0o777)


def _user(name: str) -> int:
    return int(name) if name.isascii() and name.isdigit() else pwd.getpwnam(name).pw_uid


def _group(name: str) -> int:
    return int(name) if name.isascii() and name.isdigit() else grp.getgrnam(name).gr_gid


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


COMMAND = Command(
    example="mailwarden restore /var/backups/mailwarden-2026-11-16.tar --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
