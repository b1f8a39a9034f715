"""`mailwarden init`: certificates, configuration, a first token and the database's tables."""

import argparse
import asyncio
import hashlib
import ipaddress
import os
import secrets
import socket
from importlib.resources import files
from pathlib import Path
from string import Template

from mailwarden.abby import config as abby
from mailwarden.access.setup_links import FIRST_RUN_HOURS, LinkStore
from mailwarden.access.user_store import UserStore
from mailwarden.cli.certificates import make_certificates
from mailwarden.cli.command import Command, operator
from mailwarden.cli.people import by_name, setup_link
from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.guard import config as guard
from mailwarden.model.scope import Scope

SHIPPED_TOKENS = "staticApiTokens: []"
PEPPER = "secrets/pepper"
CONTENTS = "secrets/contents"


def render(template: str, values: dict[str, str]) -> str:
    """Return a configuration file made from its template; deploy/config is made the same way."""
    text = files("mailwarden.cli").joinpath("templates", template).read_text()
    return Template(text).substitute(values)


def shipped_values() -> dict[str, str]:
    return {
        "host": "0.0.0.0",  # noqa: S104 - a server is meant to be reached; guard asks for a certificate
        "guard_host": "mta.example",
        "guard_port": "9785",
        "abby_port": "9081",
        "rspamd": "unix:/run/rspamd/normal.sock",
        "clamav": "unix:/run/clamav/clamd.ctl",
        "database_url": "postgresql://mailwarden@127.0.0.1:5432/mailwarden",
        "spool": "/var/spool/mailwarden",
        "replica": "/var/lib/mailwarden/lists",
        "vault": "/var/lib/mailwarden/quarantine",
        "tokens": SHIPPED_TOKENS,
    }


def _arguments(parser: argparse.ArgumentParser) -> None:
    shipped = shipped_values()
    parser.add_argument("folder", type=Path, help="configuration folder to make")
    parser.add_argument("--database-url", default=shipped["database_url"], help="PostgreSQL (default: %(default)s)")
    parser.add_argument("--rspamd", default=shipped["rspamd"], help="Rspamd's address (default: %(default)s)")
    parser.add_argument("--clamav", default=shipped["clamav"], help="clamd's address (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--abby-port", type=int, default=9081, help="abby's port (default: %(default)s)")
    parser.add_argument("--guard-port", type=int, default=9785, help="guard's port (default: %(default)s)")
    parser.add_argument("--name", action="append", default=[], help="further host name for the certificates")
    parser.add_argument("--no-database", action="store_true", help="leave the database alone")


def _run(arguments: argparse.Namespace) -> int:
    folder = arguments.folder.resolve()
    if (folder / abby.PATH).exists() or (folder / guard.PATH).exists():
        raise CommandError(f"{folder} already holds a configuration; remove it or choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spool").mkdir(mode=0o700, exist_ok=True)
    make_certificates(folder / "tls", _names(arguments))
    print(f"certificates   {folder}/tls (authority, abby, guard)")
    token = secrets.token_hex(32)
    _write_secret(folder / "token", token + "\n")
    (folder / PEPPER).parent.mkdir(mode=0o700, exist_ok=True)
    _write_secret(folder / PEPPER, secrets.token_hex(32) + "\n")
    _write_secret(folder / CONTENTS, secrets.token_hex(32) + "\n")
    _write_configuration(folder, arguments, token)
    print(f"configuration  {folder}/{guard.PATH}\n               {folder}/{abby.PATH}")
    print(f"token          {folder}/token (64 hex digits; abby.yml keeps its digest only)")
    print(f"pepper         {folder}/{PEPPER} (back it up: without it no API key or authenticator is known)")
    print(f"contents key   {folder}/{CONTENTS} (back it up, give it to every guard: kept messages are sealed with it)")
    if not arguments.no_database:
        applied = asyncio.run(migrate(arguments.database_url))
        print(f"database       {len(applied)} migrations applied")
        _print_setup_link(arguments)
    return 0


def _print_setup_link(arguments: argparse.Namespace) -> None:
    """Print the link by which the first person gets in, where there is none yet."""

    async def make() -> str | None:
        database = Database(arguments.database_url, pool_size=1)
        try:
            if not await UserStore(database).is_empty(Scope.deployment()):
                return None
            return await LinkStore(database).create_first(Scope.deployment(), operator())
        finally:
            await database.close()

    token = asyncio.run(make())
    if token is not None:
        unspecified = ipaddress.ip_address(arguments.host).is_unspecified
        host = next(iter(arguments.name), socket.gethostname() if unspecified else arguments.host)
        site = by_name(
            f"https://[{host}]:{arguments.abby_port}" if ":" in host else f"https://{host}:{arguments.abby_port}"
        )
        print(f"console        {setup_link(site, token)}")
        print(f"               (open it once abby runs; good once, and for {FIRST_RUN_HOURS} hours)")


def _write_configuration(folder: Path, arguments: argparse.Namespace, token: str) -> None:
    digest = hashlib.sha256(token.encode()).hexdigest()
    values = {
        "host": arguments.host,
        "guard_host": "127.0.0.1" if ipaddress.ip_address(arguments.host).is_unspecified else arguments.host,
        "guard_port": str(arguments.guard_port),
        "abby_port": str(arguments.abby_port),
        "rspamd": arguments.rspamd,
        "clamav": arguments.clamav,
        "database_url": arguments.database_url,
        "spool": "spool",
        "replica": "lists",
        "vault": "quarantine",
        "tokens": f'staticApiTokens:\n  - name: first\n    token: "sha256:{digest}"\n    permissions: ["*"]',
    }
    for path, template in ((guard.PATH, "guard.yml"), (abby.PATH, "abby.yml")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _write_secret(folder / path, render(template, values))


def _names(arguments: argparse.Namespace) -> list[str]:
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *arguments.name]
    if not ipaddress.ip_address(arguments.host).is_unspecified:
        names.append(arguments.host)
    return list(dict.fromkeys(names))


def _write_secret(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


COMMAND = Command(
    example="mailwarden init /etc/mailwarden --database-url postgresql://mailwarden@127.0.0.1/mailwarden",
    arguments=_arguments,
    run=_run,
)
