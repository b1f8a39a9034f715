"""`mailwarden keys`: creates, lists, rotates and revokes API keys."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import TypeVar

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.access.keys import ApiKey, ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.cli.command import Command, add_action, add_expires_option, by_action, operator, print_json, table
from mailwarden.cli.database import add_query_options, query_database, tenant_uid
from mailwarden.crypto.keyring import KeyRing, read_ring
from mailwarden.errors import CommandError, KeyNotFound, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read

T = TypeVar("T")
ALL = Scope.deployment()


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = add_action(
        actions,
        "create",
        "create a key and show it once",
        "mailwarden keys create soar --scope lists:read --tenant acme --expires 365d",
    )
    create.add_argument("name", metavar="NAME", help="name of the key, shown in entries and in the audit log")
    create.add_argument(
        "--scope", action="append", required=True, choices=[scope.value for scope in KeyScope],
        help="permission of the key; repeatable",
    )  # fmt: skip
    bound = create.add_mutually_exclusive_group(required=True)
    bound.add_argument(
        "--tenant", action="append", default=[], metavar="TENANT", help="name or UUID of a tenant; repeatable"
    )
    bound.add_argument("--global", dest="is_global", action="store_true", help="all tenants and the global scope")
    add_expires_option(create)
    create.add_argument(
        "--network",
        action="append",
        type=ip_network,
        default=[],
        metavar="CIDR",
        help="allowed client network; repeatable",
    )
    ls = add_action(actions, "list", "show the keys, without their secrets", "mailwarden keys list -o json")
    revoke = add_action(actions, "revoke", "revoke a key within 5 seconds", "mailwarden keys revoke ID")
    revoke.add_argument("key_id", metavar="ID", help="the key's id, as `mailwarden keys list` shows it")
    rotate = add_action(
        actions, "rotate", "create a successor of a key and show it once", "mailwarden keys rotate ID --overlap 48"
    )
    rotate.add_argument("key_id", metavar="ID", help="the old key's id, as `mailwarden keys list` shows it")
    rotate.add_argument(
        "--overlap", type=int, default=24, metavar="HOURS", help="how long the old key stays valid (default: 24)"
    )
    add_query_options(create, ls, rotate, revoke)


def _create(options: argparse.Namespace) -> int:
    pepper = _pepper(options)
    scopes = frozenset(map(KeyScope, options.scope))
    wanted = NewKey(
        options.name,
        scopes,
        frozenset(tenant_uid(options, each) for each in options.tenant),
        tuple(options.network),
        options.expires,
    )
    key, text = _ask(options, lambda store: ApiKeys(store, pepper).create(ALL, wanted, operator()))
    return _show_once(options, key, text)


def _rotate(options: argparse.Namespace) -> int:
    pepper, overlap = _pepper(options), timedelta(hours=options.overlap)
    try:
        made = _ask(options, lambda store: ApiKeys(store, pepper).rotate(ALL, options.key_id, overlap, operator()))
    except (KeyNotFound, SchemaViolation) as error:
        raise CommandError(f"{error.message} `mailwarden keys list` shows them.") from None
    return _show_once(options, *made)


def _show_once(options: argparse.Namespace, key: ApiKey, text: str) -> int:
    if options.output == "json":
        print_json({**_record(key), "key": text})
    else:
        print(text)  # on its own line, so that `> file` stores only the key
        hint = f"This is shown once. Send it as `Authorization: apikey <key>`. Its id is {key.key_id}."
        print(hint, file=sys.stderr)
    return 0


def _show(options: argparse.Namespace) -> int:
    keys = _ask(options, lambda store: store.list(ALL))
    if options.output == "json":
        print_json([_record(key) for key in keys])
    else:
        print(_table(keys))
    return 0


def _revoke(options: argparse.Namespace) -> int:
    if not _ask(options, lambda store: store.revoke(ALL, options.key_id, operator())):
        raise CommandError(f"There is no valid key with the id `{options.key_id}`; `mailwarden keys list` shows them.")
    if options.output == "json":
        print_json({"id": options.key_id, "revoked": True})
    else:
        print(f"Revoked {options.key_id}; within 5 seconds it is refused everywhere.")
    return 0


def _ask(options: argparse.Namespace, question: Callable[[KeyStore], Awaitable[T]]) -> T:
    return query_database(options, lambda database: question(KeyStore(database)))


def _pepper(options: argparse.Namespace) -> KeyRing:
    config = read(options.config / PATH, AbbyConfig)
    return read_ring(options.config / config.api_key_pepper, "apiKeyPepper")


def _record(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.key_id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "global": key.is_global,
        "tenants": sorted(key.tenants),
        "networks": list(map(str, key.networks)),
        "created": key.created,
        "createdBy": key.created_by,
        "expires": key.expires,
        "revoked": key.revoked,
        "lastUsed": key.last_used,
        "replaces": key.replaces,
        "replacedBy": key.replaced_by,
    }


def _table(keys: Sequence[ApiKey]) -> str:
    rows = [("ID", "NAME", "SCOPES", "STATE", "LAST USED", "BOUND TO")]
    for key in keys:
        bound = "every scope" if key.is_global else ", ".join(map(str, sorted(key.tenants)))
        used = "never" if key.last_used is None else f"{key.last_used:%Y-%m-%d %H:%M}"
        rows.append((key.key_id, key.name, ", ".join(sorted(key.scopes)), _state(key), used, bound))
    return table(rows)


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "revoked"
    if not key.is_valid(datetime.now(UTC)):
        return "expired"
    return "valid" if key.expires is None else f"until {key.expires:%Y-%m-%d}"


COMMAND = Command(
    example="mailwarden keys create soar --scope lists:read --scope lists:write --global --expires 365d",
    arguments=_arguments,
    run=by_action(create=_create, list=_show, rotate=_rotate, revoke=_revoke),
)
