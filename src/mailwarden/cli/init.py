"""`mailwarden init`: creates certificates, configuration, a first token and the database's tables."""

import argparse
import asyncio
import hashlib
import ipaddress
import os
import pwd
import secrets
import socket
from importlib.resources import files
from pathlib import Path
from string import Template

from msgspec import Struct

from mailwarden.abby import config as abby
from mailwarden.access.setup_links import FIRST_RUN_HOURS, LinkStore
from mailwarden.access.users import UserStore
from mailwarden.cli.certificates import KEY as CA_KEY
from mailwarden.cli.certificates import make_certificates, renew_certificates
from mailwarden.cli.command import Command, operator
from mailwarden.cli.config import check
from mailwarden.cli.database import with_driver_error
from mailwarden.cli.key_files import new_key, write_ring
from mailwarden.cli.users import setup_link, with_host_name
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.engines.table import ENGINES
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.guard import config as guard
from mailwarden.model.scope import Scope
from mailwarden.serving.tls import ABBY_NAME
from mailwarden.settings.reader import read

STATE = Path("/var/lib/mailwarden")
SPOOL = Path("/var/spool/mailwarden")
SHIPPED_TOKENS = "staticApiTokens: []"
SMTP_MODES = ("beforeQueue", "afterQueue")
PEPPER = "secrets/pepper"
CONTENTS = "secrets/contents"
# The engines with an address in `templates/guard.yml`.
_ADDRESSED = tuple(engine for engine in ENGINES if engine.shipped_address)


class Places(Struct, frozen=True):
    """The folders of an installation, and the user of the services that owns state and spool."""

    configuration: Path
    state: Path
    spool: Path
    owner: pwd.struct_passwd | None = None

    def shown(self, path: Path) -> str:
        """Return a path as configuration files write it: relative to their folder, if it is inside."""
        return str(path.relative_to(self.configuration) if path.is_relative_to(self.configuration) else path)


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
        "database_url": "postgresql://mailwarden@127.0.0.1:5432/mailwarden",
        "spool": str(SPOOL),
        "replica": str(STATE / "lists"),
        "journal": str(STATE / "journal"),
        "vault": str(STATE / "quarantine"),
        "abby_name": ABBY_NAME,
        "tokens": SHIPPED_TOKENS,
        "smtp": _smtp(None),
        **{engine.type_name: engine.shipped_address for engine in _ADDRESSED},
    }


def _smtp(mode: str | None) -> str:
    """Return the scan source `smtp` for guard.yml; a comment that shows it if there is no mode."""
    chosen = "beforeQueue        # or afterQueue" if mode is None else mode
    lines = ("smtp:", f"  mode: {chosen}", "  listen: {host: 127.0.0.1, port: 10025}", '  nextHop: "127.0.0.1:10026"')
    return "\n".join(f"  # {line}" if mode is None else f"  {line}" for line in lines)


def _arguments(parser: argparse.ArgumentParser) -> None:
    shipped = shipped_values()
    parser.add_argument("folder", type=Path, help="configuration folder to create")
    parser.add_argument("--database-url", default=shipped["database_url"], help="PostgreSQL (default: %(default)s)")
    for engine in _ADDRESSED:
        option, usual = f"--{engine.type_name}", engine.shipped_address
        parser.add_argument(option, default=usual, help=f"address of {engine.title} (default: %(default)s)")
    parser.add_argument(
        "--host", type=_address, default="127.0.0.1", help="IP address to listen on (default: %(default)s)"
    )
    parser.add_argument("--abby-port", type=_port, default=9081, help="abby's port (default: %(default)s)")
    parser.add_argument("--guard-port", type=_port, default=9785, help="guard's port (default: %(default)s)")
    parser.add_argument("--name", action="append", default=[], help="further host name for the certificates")
    parser.add_argument("--no-database", action="store_true", help="do not touch the database")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep a configuration that exists and only apply missing migrations; without it an error",
    )
    parser.add_argument(
        "--renew",
        action="store_true",
        help="only renew the certificates of abby and guard",
    )
    parser.add_argument(
        "--state",
        type=Path,
        help=f"folder of the local copy of the lists and of the quarantine (default: {STATE} for a configuration "
        "in /etc, otherwise FOLDER)",
    )
    parser.add_argument(
        "--spool",
        type=Path,
        help=f"folder of messages in processing (default: {SPOOL} for a configuration in /etc, otherwise STATE/spool)",
    )
    parser.add_argument(
        "--user",
        help="user of the services, which may read the configuration and owns state and spool; needs root",
    )
    parser.add_argument(
        "--smtp",
        choices=SMTP_MODES,
        help="filter mail for Postfix on this host, before or behind its queue",
    )
    parser.add_argument(
        "--ca-folder",
        type=Path,
        help="folder of the CA and its key, outside the configuration and off the hosts of abby and guard "
        "(default: FOLDER/tls)",
    )


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        message = f"`{text}` is no IP address; the names by which it is reached are given by --name"
        raise argparse.ArgumentTypeError(message) from None


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port: 0 to 65535")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    folder = arguments.folder.resolve()
    ca_folder = arguments.ca_folder.resolve() if arguments.ca_folder is not None else None
    if ca_folder is not None and ca_folder.is_relative_to(folder):
        raise CommandError(f"--ca-folder {ca_folder} is inside {folder}; choose one that the services' hosts lack.")
    try:
        if arguments.renew:
            renew_certificates(folder / "tls", arguments.name, ca_folder)
            print(f"certificates   {folder}/tls (abby, guard); restart both")
            return 0
        if arguments.keep and _holds_configuration(folder):
            print(f"configuration  {folder} is there and is kept")
        else:
            places = _places(folder, arguments)
            _make(places, ca_folder, arguments)
            if places.owner is not None:
                _give_to_services(places, places.owner)
    except OSError as error:
        raise CommandError(f"Cannot write {error.filename or folder}: {error.strerror}.") from None
    if not arguments.no_database:
        _prepare_database(folder, arguments)
    return 0


def _holds_configuration(folder: Path) -> bool:
    return (folder / abby.PATH).exists() or (folder / guard.PATH).exists()


def _places(folder: Path, arguments: argparse.Namespace) -> Places:
    """Return the folders of an installation: apart below /etc, otherwise all in one."""
    in_etc = folder.is_relative_to("/etc")
    state = arguments.state.resolve() if arguments.state else STATE if in_etc else folder
    spool = arguments.spool.resolve() if arguments.spool else SPOOL if in_etc else state / "spool"
    if not arguments.user:
        return Places(folder, state, spool)
    if state == folder:
        raise CommandError("--user: choose a --state outside the configuration, which the services only read.")
    try:
        return Places(folder, state, spool, pwd.getpwnam(arguments.user))
    except KeyError:
        raise CommandError(f"--user {arguments.user}: this host has no such user.") from None


def _give_to_services(places: Places, owner: pwd.struct_passwd) -> None:
    """Let the services read the configuration without changing it, and give them state and spool.

    The key of the authority and the first token stay with the caller alone.
    """
    folder = places.configuration
    kept = {folder / "token", folder / "tls" / CA_KEY, places.state, places.spool}
    for path in (folder, *folder.rglob("*")):
        if kept.isdisjoint({path, *path.parents}):
            os.chown(path, 0, owner.pw_gid)
            path.chmod(0o750 if path.is_dir() else 0o640)
    for path in (places.state, places.spool):
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(0o700)


def _make(places: Places, ca_folder: Path | None, arguments: argparse.Namespace) -> None:
    folder = places.configuration
    if _holds_configuration(folder):
        raise CommandError(
            f"{folder} already holds a configuration; choose another folder. "
            "New certificates are made by --renew, new tables by --keep or `mailwarden database migrate`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / PEPPER).parent.mkdir(mode=0o700, exist_ok=True)
    token = secrets.token_hex(32)
    try:
        _write_configuration(places, arguments, token)
        _make_secrets(folder, token)
        _make_certificates(folder / "tls", ca_folder, _names(arguments))
    except (OSError, CommandError):
        # The operator fixes the cause and runs the same command again.
        for path in (guard.PATH, abby.PATH):
            (folder / path).unlink(missing_ok=True)
        raise


def _make_secrets(folder: Path, token: str) -> None:
    _write_secret(folder / "token", token + "\n")
    print(f"token          {folder}/token (64 hex digits; abby.yml keeps its digest only)")
    made = _keep_or_make(folder / PEPPER)
    print(f"pepper         {made} (back it up: without it no API key or authenticator is known)")
    made = _keep_or_make(folder / CONTENTS)
    print(f"contents key   {made} (back it up, give it to every guard: kept messages are sealed with it)")


def _make_certificates(folder: Path, ca_folder: Path | None, names: list[str]) -> None:
    if folder.exists():
        print(f"certificates   {folder} is there and is kept")
        return
    make_certificates(folder, names, ca_folder)
    print(f"certificates   {folder} (authority, abby, guard)")
    if ca_folder is None:
        print(f"               (move {folder}/{CA_KEY} to a safe place off this host: it signs for every process)")
    else:
        print(f"               (the authority's key is {ca_folder}/{CA_KEY}; --renew needs it)")


def _keep_or_make(path: Path) -> str:
    """Make a secret unless it exists: a new one would lose everything that was encrypted with the old one."""
    if path.exists():
        return f"{path} is there and is kept"
    write_ring(path, [new_key()])
    return str(path)


def _prepare_database(folder: Path, arguments: argparse.Namespace) -> None:
    url = read(folder / abby.PATH, abby.AbbyConfig).database.url
    try:
        applied = asyncio.run(migrate(url))
        print(f"database       {len(applied)} migrations applied")
        _print_setup_link(folder, url, arguments)
    except StorageUnavailable as error:
        raise CommandError(
            f"{with_driver_error(error)} Everything else is made. Correct database.url in both files, then run "
            f"`mailwarden database migrate --config {folder}`, "
            f"then `mailwarden users setup-link --config {folder}` for the console's link."
        ) from None


def _print_setup_link(folder: Path, url: str, arguments: argparse.Namespace) -> None:
    """Print the setup link of the first user, if there is no user yet."""
    pepper = read_ring(folder / PEPPER, "apiKeyPepper")

    async def make() -> str | None:
        database = Database(url, pool_size=1, pooled=True)
        try:
            if not await UserStore(database).is_empty(Scope.deployment()):
                return None
            return await LinkStore(database, pepper).create_first(Scope.deployment(), operator())
        finally:
            await database.close()

    token = asyncio.run(make())
    if token is not None:
        unspecified = ipaddress.ip_address(arguments.host).is_unspecified
        host = next(iter(arguments.name), socket.gethostname() if unspecified else arguments.host)
        site = with_host_name(
            f"https://[{host}]:{arguments.abby_port}" if ":" in host else f"https://{host}:{arguments.abby_port}"
        )
        print(f"console        {setup_link(site, token)}")
        print(f"               (open it once abby runs; good once, and for {FIRST_RUN_HOURS} hours)")


def _write_configuration(places: Places, arguments: argparse.Namespace, token: str) -> None:
    folder = places.configuration
    digest = hashlib.sha256(token.encode()).hexdigest()
    values = {
        "host": arguments.host,
        "guard_host": "127.0.0.1" if ipaddress.ip_address(arguments.host).is_unspecified else arguments.host,
        "guard_port": str(arguments.guard_port),
        "abby_port": str(arguments.abby_port),
        "database_url": arguments.database_url,
        "spool": places.shown(places.spool),
        "replica": places.shown(places.state / "lists"),
        "journal": places.shown(places.state / "journal"),
        "vault": places.shown(places.state / "quarantine"),
        "abby_name": ABBY_NAME,
        "smtp": _smtp(arguments.smtp),
        "tokens": f'staticApiTokens:\n  - name: first\n    token: "sha256:{digest}"\n    permissions: ["*"]',
        **{engine.type_name: getattr(arguments, engine.type_name) for engine in _ADDRESSED},
    }
    for path, template in ((guard.PATH, "guard.yml"), (abby.PATH, "abby.yml")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _write_secret(folder / path, render(template, values))
    if mistakes := check(folder):
        raise CommandError("This would make a configuration with mistakes.\n" + "\n".join(map(str, mistakes)))
    print(f"configuration  {folder}/{guard.PATH}\n               {folder}/{abby.PATH}")


def _names(arguments: argparse.Namespace) -> list[str]:
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *arguments.name]
    if not ipaddress.ip_address(arguments.host).is_unspecified:
        names.append(arguments.host)
    return list(dict.fromkeys(names))


def _write_secret(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


COMMAND = Command(
    example="mailwarden init /etc/mailwarden --user mailwarden "
    "--database-url postgresql://mailwarden@127.0.0.1/mailwarden",
    arguments=_arguments,
    run=_run,
)
