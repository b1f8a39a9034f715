"""`mailwarden tenants`: makes tenants and shows them."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from mailwarden.access.tenants import TenantStore
from mailwarden.cli.command import Command, operator
from mailwarden.cli.database import add_database_options, ask_database
from mailwarden.errors import CommandError, DomainTaken, NameTaken, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant

T = TypeVar("T")


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a tenant")
    create.add_argument("name", metavar="NAME", help="the tenant's name, unique in the deployment")
    create.add_argument(
        "--domain", action="append", default=[], metavar="DOMAIN", help="recipient domain of the tenant; repeatable"
    )
    create.add_argument(
        "--profile", choices=[profile.value for profile in Profile], default=Profile.BALANCED.value,
        help="how strictly verdicts become decisions (default: balanced)",
    )  # fmt: skip
    ls = actions.add_parser("ls", help="show the tenants")
    for action in (create, ls):
        action.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the output")
        add_database_options(action)


def _run(options: argparse.Namespace) -> int:
    if options.action == "create":
        profile = Profile(options.profile)
        tenant = _ask(
            options,
            lambda store: store.create(Scope.deployment(), options.name, options.domain, profile, actor=operator()),
        )
        tenants: Sequence[Tenant] = [tenant]
    else:
        tenants = _ask(options, lambda store: store.list(Scope.deployment()))
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(_records(tenants, options.action))).decode())
    else:
        print(_table(tenants))
    return 0


def _ask(options: argparse.Namespace, question: Callable[[TenantStore], Awaitable[T]]) -> T:
    try:
        return ask_database(options, lambda database: question(TenantStore(database)))
    except (SchemaViolation, NameTaken, DomainTaken) as error:
        raise CommandError(error.message) from None


def _records(tenants: Sequence[Tenant], action: str) -> object:
    records = [
        {
            "tenantUid": tenant.uid,
            "name": tenant.name,
            "profile": tenant.profile,
            "default": tenant.is_default,
            "domains": tenant.domains,
        }
        for tenant in tenants
    ]
    return records[0] if action == "create" else records


def _table(tenants: Sequence[Tenant]) -> str:
    rows = [("TENANT UID", "NAME", "PROFILE", "DOMAINS")]
    for tenant in tenants:
        name = f"{tenant.name} (default)" if tenant.is_default and tenant.name != "default" else tenant.name
        rows.append((str(tenant.uid), name, tenant.profile.value, ", ".join(tenant.domains) or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    )


COMMAND = Command(
    example="mailwarden tenants create acme --domain acme.example --profile strict",
    arguments=_arguments,
    run=_run,
)
