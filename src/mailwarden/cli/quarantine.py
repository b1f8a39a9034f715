"""`mailwarden quarantine`: lists, releases, deletes and exports held messages."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.access.tenant_domains import domain_of_recipient
from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.cli.command import Command, add_action, by_action, operator, print_json, shown, table
from mailwarden.cli.database import add_database_options, add_query_options, find_tenant, query_database
from mailwarden.cli.vault_owner import add_take_ownership, take_ownership
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, MailwardenError
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig
from mailwarden.lists.catalogue import MatchOn, block_and_allow
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.quarantine.digest import Digest, DigestJob
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.digest_mail import DigestWriter
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.model import HeldFilter, HeldMessage, State
from mailwarden.quarantine.requests import SenderPart
from mailwarden.quarantine.service import QuarantineService, held_of
from mailwarden.quarantine.settings import DigestSettings
from mailwarden.quarantine.store import MAX_PAGE, QuarantineStore, fold
from mailwarden.quarantine.vault import open_vault
from mailwarden.settings.reader import read
from mailwarden.smtp.own_mail import UnwritableAddress

T = TypeVar("T")
ALL = Scope.deployment()
PATIENCE = 15.0  # time for a guard to carry out a request
LOOK = 0.5


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    ls = add_action(
        actions,
        "list",
        "show held messages, newest first",
        "mailwarden quarantine list --tenant acme --verdict spam --days 7",
    )
    _add_filters(ls)
    show = add_action(
        actions, "show", "show one held message and its state for each recipient", "mailwarden quarantine show UID"
    )
    release = add_action(
        actions,
        "release",
        "release messages and wait for the result",
        "mailwarden quarantine release UID --to ann@acme.example --allow address",
    )
    delete = add_action(actions, "delete", "delete messages", "mailwarden quarantine delete UID --block domain")
    export = add_action(
        actions,
        "export",
        "write the original message to a file, with any harmful content",
        "mailwarden quarantine export UID message.eml",
    )
    for action in (show, export):
        action.add_argument(
            "uid", type=UUID, metavar="UID", help="the message, as `mailwarden quarantine list` shows it"
        )
    export.add_argument("file", type=Path, metavar="FILE", help="file to write, which must not exist")
    block, allow = block_and_allow(MatchOn.SENDER)
    for action, word, name in ((release, "--allow", allow), (delete, "--block", block)):
        action.add_argument("uids", nargs="+", type=UUID, metavar="UID", help="the messages")
        action.add_argument("--to", action="append", metavar="ADDRESS", help="only for this recipient; repeatable")
        action.add_argument(
            word, dest="listed", choices=[each.value for each in SenderPart], help=f"also add the sender to {name}"
        )
        action.add_argument("--global-list", action="store_true", help="use the global list instead of the tenant's")
    release.add_argument(
        "--train", action="store_true", help="train the tenant's statistics that such messages are good"
    )
    days = _add_retention(actions)
    add_digest(actions)
    add_take_ownership(actions)
    add_query_options(ls, show, release, delete, days)
    add_database_options(export)


def _add_filters(ls: argparse.ArgumentParser) -> None:
    ls.add_argument("--tenant", metavar="TENANT", help="name or UUID of the tenant")
    ls.add_argument("--verdict", choices=[each.value for each in Verdict], help="only messages with this verdict")
    ls.add_argument("--recipient", metavar="ADDRESS", help="only messages to this address, or @domain")
    ls.add_argument("--sender", metavar="ADDRESS", help="only messages from this address, or @domain")
    ls.add_argument("--text", metavar="TEXT", help="only messages with this text in the subject")
    ls.add_argument(
        "--state", choices=[each.value for each in State], help="only messages with a recipient in this state"
    )
    ls.add_argument("--days", type=float, metavar="NUMBER", help="only messages of the last days")
    ls.add_argument(
        "--limit",
        type=int,
        default=50,
        metavar="NUMBER",
        help=f"maximum number of rows (default: 50, at most {MAX_PAGE})",
    )


def _add_retention(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    days = add_action(
        actions,
        "retention",
        "show or change the retention of a tenant's held messages",
        "mailwarden quarantine retention acme --set spam=14 --set default=30",
    )
    days.add_argument("tenant", metavar="TENANT", help="name or UUID of the tenant")
    days.add_argument(
        "--set", dest="days", action="append", default=[], metavar="VERDICT=DAYS",
        help="days for a verdict, or `default` for all others; repeatable",
    )  # fmt: skip
    days.add_argument("--reset", action="store_true", help="remove the tenant's own values before --set")
    return days


def _ls(options: argparse.Namespace) -> int:
    async def find(service: QuarantineService, database: Database) -> Sequence[HeldMessage]:
        question = HeldFilter(
            tenant=None if options.tenant is None else (await find_tenant(database, options.tenant)).uid,
            verdict=None if options.verdict is None else Verdict(options.verdict),
            recipient=options.recipient,
            sender=options.sender,
            text=options.text,
            state=None if options.state is None else State(options.state),
            since=None if options.days is None else datetime.now(UTC) - timedelta(days=options.days),
        )
        return await service.store.page(ALL, question, max(1, options.limit))

    messages = _ask(options, find)
    if options.output == "json":
        print_json([held_of(message) for message in messages])
        return 0
    rows = [("UID", "RECEIVED", "VERDICT", "STATE", "FROM", "TO", "SUBJECT")]
    for message in messages:
        states = ",".join(dict.fromkeys(recipient.state for recipient in message.recipients))
        first, others = message.recipients[0].address if message.recipients else "-", len(message.recipients) - 1
        to = f"{first} +{others}" if others > 0 else first
        moment = message.received.strftime("%Y-%m-%d %H:%M")
        row = (
            str(message.uid),
            moment,
            message.verdict,
            states,
            message.from_address or message.sender or "<>",
            to,
            message.subject,
        )
        rows.append(tuple(shown(cell) for cell in row))  # type: ignore[arg-type]
    print(table(rows) if messages else "Nothing is held that is like this.")
    return 0


def _show(options: argparse.Namespace) -> int:
    async def find(service: QuarantineService, _: Database) -> HeldMessage:
        return await service.store.find(ALL, options.uid)

    _print(options, [_ask(options, find)])
    return 0


def _release(options: argparse.Namespace) -> int:
    async def release(service: QuarantineService, _: Database) -> list[HeldMessage]:
        for uid in options.uids:
            listed = None if options.listed is None else SenderPart(options.listed)
            await service.release(
                ALL,
                uid,
                operator(),
                recipients=options.to,
                allow=listed,
                global_list=options.global_list,
                train=options.train,
            )
        until = time.monotonic() + PATIENCE
        while True:
            messages = [await service.store.find(ALL, uid) for uid in options.uids]
            if time.monotonic() > until or not any(message.in_state(State.RELEASING) for message in messages):
                return messages
            await asyncio.sleep(LOOK)

    messages = _ask(options, release)
    _print(options, messages)
    if any(each.in_state(State.RELEASING) for each in messages):
        print("mailwarden: no guard has done it yet; one does as soon as it can.", file=sys.stderr)
        return 1
    # A recipient who was not requested may have been rejected before.
    asked = None if options.to is None else {fold(each) for each in options.to}
    recipients = (recipient for message in messages for recipient in message.recipients)
    return (
        1
        if any(recipient.failure for recipient in recipients if asked is None or fold(recipient.address) in asked)
        else 0
    )


def _delete(options: argparse.Namespace) -> int:
    async def delete(service: QuarantineService, _: Database) -> list[HeldMessage]:
        listed = None if options.listed is None else SenderPart(options.listed)
        return [
            await service.delete(
                ALL, uid, operator(), recipients=options.to, block=listed, global_list=options.global_list
            )
            for uid in options.uids
        ]

    _print(options, _ask(options, delete))
    return 0


def _export(options: argparse.Namespace) -> int:
    async def export(service: QuarantineService, _: Database) -> int:
        raw = await service.export(ALL, options.uid, operator())
        try:
            with os.fdopen(os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for chunk in raw.chunks():
                    file.write(chunk)
        except OSError as error:
            raise CommandError(f"{options.file} cannot be written ({error.strerror}).") from None
        finally:
            raw.close()
        return raw.size

    print(f"{options.file}: {_ask(options, export):,} bytes, as harmful as they came.")
    return 0


def _retention(options: argparse.Namespace) -> int:
    given: dict[str, int] = {}
    for text in options.days:
        verdict, _, number = text.partition("=")
        if not number.isdecimal():
            raise CommandError(f"`{text}` is not VERDICT=DAYS.")
        given[verdict] = int(number)

    async def change(_: QuarantineService, database: Database) -> Mapping[str, int]:
        store, uid = TenantStore(database), (await find_tenant(database, options.tenant)).uid
        (tenant,) = await store.list(Scope.of(uid))
        wanted = ({} if options.reset else tenant.quarantine_days) | given
        if wanted == tenant.quarantine_days:
            return wanted
        return (await store.hold(ALL, uid, wanted, operator())).quarantine_days

    found = _ask(options, change)
    if options.output == "json":
        print_json(found)
    else:
        print("\n".join(f"{verdict}  {days} days" for verdict, days in found.items()) or "As guard.yml says.")
    return 0


def _ask(options: argparse.Namespace, question: Callable[[QuarantineService, Database], Awaitable[T]]) -> T:
    """Run an operation with the same database, vault and key as abby."""
    config = read(options.config / ABBY_PATH, AbbyConfig)
    vault = open_vault(
        config.quarantine, options.config, read_ring(options.config / config.contents.key, "contents.key")
    )

    async def ask(database: Database) -> T:
        with tempfile.TemporaryDirectory() as spool:
            lists = ListService(ListStore(database, database))
            return await question(QuarantineService(QuarantineStore(database), vault, lists, Path(spool)), database)

    try:
        return query_database(options, ask)
    except CommandError:
        raise
    except MailwardenError as error:
        raise CommandError(error.message) from None


def _print(options: argparse.Namespace, messages: Sequence[HeldMessage]) -> None:
    if options.output == "json":
        print_json([held_of(message) for message in messages])
        return
    for message in messages:
        kept = "" if message.is_kept else ", the message itself is not kept"
        print(f"{message.uid}  {message.verdict}, {message.size:,} bytes, until {message.expires:%Y-%m-%d}{kept}")
        print(f"  ggrid    {message.ggrid}\n  from     {shown(message.from_address or message.sender or '<>')}")
        print(f"  subject  {shown(message.subject)}\n  reason   {shown(message.reason)}")
        print(f"  more     /console/messages/{message.ggrid}")
        for to in message.recipients:
            why = f": {shown(to.failure)}" if to.failure else f" by {to.changed_by}" if to.changed_by else ""
            print(f"  {to.state:<9}{shown(to.address)}{why}")


def add_digest(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    digest = actions.add_parser(
        "digest",
        help="show, enable or disable the daily digest of a tenant",
        epilog="Example:\n  mailwarden quarantine digest acme --preview ann@acme.example",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    digest.add_argument("tenant", metavar="TENANT", help="name or UUID of the tenant")
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
        return await store.change(
            ALL, tenant.uid, replace(TenantSettings.of(tenant), quarantine_digest=options.on), operator()
        )

    tenant = query_database(options, change)
    print(f"{tenant.name}: the daily digest is {'on' if tenant.quarantine_digest else 'off'}.")
    if tenant.quarantine_digest and not tenant.domains:
        print("mailwarden: the tenant has no recipient domains, so no digests are sent.", file=sys.stderr)
    if tenant.quarantine_digest and _sends_no_digests(options.config / GUARD_PATH):
        print(
            f"mailwarden: {options.config / GUARD_PATH} has no quarantine.digest, so that guard sends none.",
            file=sys.stderr,
        )
    return 0


def _sends_no_digests(path: Path) -> bool:
    """Return whether this host has a guard that sends no digests."""
    return path.exists() and read(path, GuardConfig).quarantine.digest is None


def _preview(options: argparse.Namespace) -> str:
    config = read(options.config / GUARD_PATH, GuardConfig)
    settings = config.quarantine.digest
    if settings is None:
        raise CommandError(f"There is no quarantine.digest in {options.config / GUARD_PATH}.")
    writer = DigestWriter(settings, DigestLinkSigner(read_ring(options.config / config.contents.key, "contents.key")))
    digest = query_database(options, lambda database: _collect(database, options, settings))
    if not digest.uids:
        return "No new messages are held for this recipient.\n"
    try:
        return writer.preview(digest, datetime.now(UTC))
    except UnwritableAddress:
        raise CommandError("This address cannot be written to.") from None


async def _collect(database: Database, options: argparse.Namespace, settings: DigestSettings) -> Digest:
    tenant = await find_tenant(database, options.tenant)
    if domain_of_recipient(options.preview) not in tenant.domains:
        raise CommandError(f"`{options.preview}` is in no domain of {tenant.name} and gets no digest.")
    turn = DigestJob(tenant.uid, options.preview)
    return await DigestStore(database).collect(ALL, turn, datetime.now(UTC), settings.max_messages)


COMMAND = Command(
    example="mailwarden quarantine release UID --to ann@acme.example --allow address",
    arguments=_arguments,
    run=by_action(
        list=_ls,
        show=_show,
        release=_release,
        delete=_delete,
        export=_export,
        retention=_retention,
        digest=run_digest,
        take_ownership=take_ownership,
    ),
)
