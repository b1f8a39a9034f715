"""`mailwarden tenants`: creates, changes and lists tenants."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.command import Command, add_action, operator, print_json, table
from mailwarden.cli.database import add_query_options, query_database
from mailwarden.errors import CommandError, DomainTaken, NameTaken, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.rules import load_policy, read_weights, tenant_problems

T = TypeVar("T")


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = add_action(
        actions, "create", "create a tenant", "mailwarden tenants create acme --domain acme.example --profile strict"
    )
    create.add_argument("name", metavar="NAME", help="the tenant's name, unique in the deployment")
    create.add_argument(
        "--domain", action="append", default=[], metavar="DOMAIN", help="recipient domain of the tenant; repeatable"
    )
    create.add_argument(
        "--profile", choices=[profile.value for profile in Profile], default=Profile.BALANCED.value,
        help="how strictly verdicts become decisions (default: balanced)",
    )  # fmt: skip
    ls = add_action(actions, "list", "show the tenants", "mailwarden tenants list")
    weights = add_action(
        actions,
        "weights",
        "override rule weights for one tenant, from 0 to twice the shipped weight",
        "mailwarden tenants weights acme --set html.link-mismatch=80",
    )
    weights.add_argument("name", metavar="TENANT", help="name or UUID of the tenant")
    weights.add_argument(
        "--set", dest="weights", action="append", default=[], metavar="RULE=WEIGHT",
        help="the weight of a rule for this tenant; repeatable",
    )  # fmt: skip
    weights.add_argument("--reset", action="store_true", help="remove the tenant's overrides before --set")
    add_query_options(create, ls, weights)


def _run(options: argparse.Namespace) -> int:
    if options.action == "create":
        profile = Profile(options.profile)
        tenant = _ask(
            options,
            lambda store: store.create(Scope.deployment(), options.name, options.domain, profile, actor=operator()),
        )
        tenants: Sequence[Tenant] = [tenant]
    elif options.action == "weights":
        return _set_weights(options)
    else:
        tenants = _ask(options, lambda store: store.list(Scope.deployment()))
    if options.output == "json":
        print_json(_records(tenants, options.action))
    else:
        print(_table(tenants))
    return 0


def _set_weights(options: argparse.Namespace) -> int:
    """Change the weights and print all weights of the tenant."""
    policy = load_policy()
    try:
        given = read_weights(options.weights)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if problems := list(tenant_problems(policy, given)):
        raise CommandError(" ".join(problems))

    async def change(store: TenantStore) -> Tenant:
        everything = Scope.deployment()
        for tenant in await store.list(everything):
            if options.name.casefold() in (tenant.name.casefold(), str(tenant.uid)):
                kept = {} if options.reset else tenant.weights
                if kept | given == tenant.weights:
                    return tenant
                return await store.set_weights(everything, tenant.uid, kept | given, operator())
        raise CommandError(f"There is no tenant named `{options.name}`.")

    tenant = _ask(options, change)
    if options.output == "json":
        print_json(tenant.weights)
        return 0
    usual = {rule.id: str(rule.weight) for rule in policy.rules}
    for rule, weight in tenant.weights.items():
        print(f"{rule}  {usual.get(rule, 'gone')} -> {weight}")
    if not tenant.weights:
        print(f"{tenant.name} has no overrides: every rule has its shipped weight.")
    return 0


def _ask(options: argparse.Namespace, question: Callable[[TenantStore], Awaitable[T]]) -> T:
    try:
        return query_database(options, lambda database: question(TenantStore(database)))
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
            "weights": tenant.weights,
        }
        for tenant in tenants
    ]
    return records[0] if action == "create" else records


def _table(tenants: Sequence[Tenant]) -> str:
    rows = [("TENANT UID", "NAME", "PROFILE", "DOMAINS")]
    for tenant in tenants:
        name = f"{tenant.name} (default)" if tenant.is_default and tenant.name != "default" else tenant.name
        rows.append((str(tenant.uid), name, tenant.profile.value, ", ".join(tenant.domains) or "-"))
    return table(rows)


COMMAND = Command(
    example="mailwarden tenants create acme --domain acme.example --profile strict",
    arguments=_arguments,
    run=_run,
)
