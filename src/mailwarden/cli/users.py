"""`mailwarden users`: invites, lists, disables and enables users of the console."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.access.setup_links import FIRST_RUN_HOURS, INVITE_HOURS, LinkStore
from mailwarden.access.users import Position, Role, User, UserStore, checked_email
from mailwarden.cli.command import Command, abby_url, add_action, operator, table
from mailwarden.cli.database import add_query_options, find_tenant, query_database
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read

T = TypeVar("T")
ALL = Scope.deployment()


def setup_link(site: str, token: str) -> str:
    """Return the setup link for a browser."""
    return f"{site}/console/setup/{token}"


def with_host_name(site: str) -> str:
    """Return the URL with a host name instead of a local address: browsers create passkeys only for names."""
    parts = urlsplit(site)
    return f"https://localhost:{parts.port}" if parts.hostname in ("127.0.0.1", "::1") else site


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    first = add_action(
        actions,
        "setup-link",
        f"print the setup link for the first user, valid for {FIRST_RUN_HOURS} hours",
        "mailwarden users setup-link",
    )
    invite = add_action(
        actions,
        "invite",
        f"print a link for a new user, valid once for {INVITE_HOURS} hours",
        "mailwarden users invite --role analyst --tenant acme --email ada@company.example",
    )
    invite.add_argument("--role", required=True, choices=[role.value for role in Role], help="role of the user")
    invite.add_argument(
        "--tenant", action="append", default=[], metavar="TENANT", help="name or UUID of a tenant; repeatable"
    )
    invite.add_argument("--email", default="", help="address of the user; no mail is sent")
    ls = add_action(actions, "list", "show all users", "mailwarden users list")
    link = add_action(
        actions, "reset-link", "print a link to set a new password and second factor", "mailwarden users reset-link ada"
    )
    disable = add_action(actions, "disable", "disable a user at once", "mailwarden users disable ada")
    enable = add_action(actions, "enable", "enable a user again", "mailwarden users enable ada")
    for action in (link, disable, enable):
        action.add_argument("name", metavar="NAME", help="login name of the user")
    for action in (first, invite, ls, link, disable, enable):
        action.add_argument("--url", help="address of abby for browsers (default: from the configuration)")
        add_query_options(action)


def _run(options: argparse.Namespace) -> int:
    if options.action == "list":
        users = _ask(options, lambda database: UserStore(database).list(ALL))
        _print(options, [_record(user) for user in users], _table(users))
    elif options.action in ("disable", "enable"):
        user = _ask(options, lambda database: _set_disabled(database, options.name, options.action == "disable"))
        _print(options, _record(user), f"{user.name} is {'disabled' if user.disabled else 'enabled'}.")
    else:
        link = setup_link(_site(options), _ask(options, lambda database: _new_link(database, options)))
        _print(options, {"link": link}, link)
    return 0


async def _new_link(database: Database, options: argparse.Namespace) -> str:
    config = read(options.config / PATH, AbbyConfig)
    links = LinkStore(database, read_ring(options.config / config.api_key_pepper, "apiKeyPepper"))
    if options.action == "invite":
        position = Position(
            Role(options.role), frozenset([(await find_tenant(database, each)).uid for each in options.tenant])
        )
        return await links.invite(ALL, position, checked_email(options.email), operator())
    if options.action == "reset-link":
        return await links.renew(ALL, await _find(database, options.name), operator())
    if not await UserStore(database).is_empty(ALL):
        raise CommandError("A user exists already: use `mailwarden users reset-link NAME`.")
    return await links.create_first(ALL, operator())


async def _set_disabled(database: Database, name: str, disabled: bool) -> User:
    user = await _find(database, name)
    return await UserStore(database).disable(ALL, user.uid, operator(), disabled=disabled)


async def _find(database: Database, name: str) -> User:
    found = await UserStore(database).find_name(ALL, name)
    if found is None:
        raise CommandError(f"There is no user `{name}`; `mailwarden users list` shows all users.")
    return found[0]


def _ask(options: argparse.Namespace, question: Callable[[Database], Awaitable[T]]) -> T:
    return query_database(options, question)


def _site(options: argparse.Namespace) -> str:
    if options.url:
        return str(options.url).rstrip("/")
    return read(options.config / PATH, AbbyConfig).console.public_url or with_host_name(abby_url(options))


def _record(user: User) -> dict[str, object]:
    return {
        "uid": user.uid,
        "name": user.name,
        "email": user.email,
        "role": user.role,
        "tenants": sorted(user.tenants),
        "disabled": user.disabled,
        "created": user.created,
        "lastLogin": user.last_login,
    }


def _table(users: Sequence[User]) -> str:
    rows = [("NAME", "ROLE", "STATE", "LAST LOGIN", "BOUND TO")]
    for user in users:
        seen = "never" if user.last_login is None else f"{user.last_login:%Y-%m-%d %H:%M}"
        bound = ", ".join(map(str, sorted(user.tenants))) or "the deployment"
        rows.append((user.name, user.role.value, "disabled" if user.disabled else "active", seen, bound))
    return table(rows)


def _print(options: argparse.Namespace, record: object, text: str) -> None:
    print(msgspec.json.format(msgspec.json.encode(record)).decode() if options.output == "json" else text)


COMMAND = Command(
    example="mailwarden users invite --role analyst --email ada@company.example",
    arguments=_arguments,
    run=_run,
)
