"""`mailwarden quarantine digest`: switches the daily digest of a tenant on or off, and shows what one would say."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from mailwarden.access.domains import domain_of_recipient
from mailwarden.access.tenants import TenantStore, Wishes
from mailwarden.cli.command import operator
from mailwarden.cli.database import add_database_options, ask_database, find_tenant
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.guard.config import PATH, GuardConfig
from mailwarden.guard.digest_mail import DigestWriter, Unwritable
from mailwarden.guard.quarantine_config import DigestSettings
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.quarantine.digest import Digest, Turn
from mailwarden.quarantine.digest_link import LinkSeal
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.settings.reader import read

ALL = Scope.deployment()


def add_digest(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    digest = actions.add_parser(
        "digest",
        help="show, enable or disable the daily digest of a tenant",
        epilog="Example:\n  mailwarden quarantine digest acme --preview ann@acme.example",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    digest.add_argument("tenant", metavar="TENANT", help="the tenant's name or uid")
    either = digest.add_mutually_exclusive_group()
    either.add_argument("--on", action="store_true", help="enable the digest")
    either.add_argument("--off", action="store_true", help="disable the digest; existing links become invalid")
    either.add_argument("--preview", metavar="ADDRESS", help="print the digest of this recipient without sending it")
    add_database_options(digest)


def run_digest(options: argparse.Namespace) -> int:
    if options.preview is not None:
        print(_preview(options), end="")
        return 0

    async def change(database: Database) -> Tenant:
        tenant, store = await find_tenant(database, options.tenant), TenantStore(database)
        if (not options.on and not options.off) or tenant.quarantine_digest == options.on:
            return tenant
        return await store.change(ALL, tenant.uid, replace(Wishes.of(tenant), quarantine_digest=options.on), operator())

    tenant = ask_database(options, change)
    print(f"{tenant.name}: the daily digest is {'on' if tenant.quarantine_digest else 'off'}.")
    if tenant.quarantine_digest and not tenant.domains:
        print("mailwarden: it has no recipient domains, so nobody is told.", file=sys.stderr)
    if tenant.quarantine_digest and _is_sent_by_none(options.config / PATH):
        print(
            f"mailwarden: {options.config / PATH} has no quarantine.digest, so that guard sends none.", file=sys.stderr
        )
    return 0


def _is_sent_by_none(path: Path) -> bool:
    """Tell whether this host has a guard, and that one sends no digests."""
    return path.exists() and read(path, GuardConfig).quarantine.digest is None


def _preview(options: argparse.Namespace) -> str:
    config = read(options.config / PATH, GuardConfig)
    settings = config.quarantine.digest
    if settings is None:
        raise CommandError(f"There is no quarantine.digest in {options.config / PATH}.")
    writer = DigestWriter(settings, LinkSeal(read_ring(options.config / config.contents.key, "contents.key")))
    digest = ask_database(options, lambda database: _collect(database, options, settings))
    if not digest.uids:
        return "Nothing is held for this recipient that was not told already.\n"
    try:
        return writer.preview(digest, datetime.now(UTC))
    except Unwritable:
        raise CommandError("This address cannot be written to.") from None


async def _collect(database: Database, options: argparse.Namespace, settings: DigestSettings) -> Digest:
    tenant = await find_tenant(database, options.tenant)
    if domain_of_recipient(options.preview) not in tenant.domains:
        raise CommandError(f"`{options.preview}` is in no domain of {tenant.name}, and is told nothing.")
    turn = Turn(tenant.uid, options.preview)
    return await DigestStore(database).collect(ALL, turn, datetime.now(UTC), settings.max_messages)
