"""The definition of a subcommand, and the parts that several subcommands share: options and output."""

import argparse
import getpass
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mailwarden.abby import config as abby
from mailwarden.errors import CommandError
from mailwarden.model.scope import Actor
from mailwarden.settings.reader import read

CONFIG_VARIABLE = "MAILWARDEN_CONFIG"
DEFAULT_CONFIG = "/etc/mailwarden"


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand; `run` returns the exit code, or raises CommandError."""

    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add `--config`, the folder with abby/, guard/ and tls/."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FOLDER",
        default=Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG)),
        help=f"configuration folder (default: ${CONFIG_VARIABLE}, or {DEFAULT_CONFIG})",
    )


def operator() -> Actor:
    """Return the user of the command, as the audit log names it."""
    return Actor(f"cli:{getpass.getuser()}")


def add_address_options(parser: argparse.ArgumentParser) -> None:
    """Add `--url`, `--ca` and `--config`."""
    parser.add_argument("--url", help="abby's address (default: from the configuration)")
    parser.add_argument("--ca", type=Path, help="certificate authority (default: tls/ca.crt of the configuration)")
    add_config_option(parser)


def abby_url(options: argparse.Namespace) -> str:
    if options.url:
        return str(options.url)
    listen = read(options.config / abby.PATH, abby.AbbyConfig).listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - compared, not bound
    return f"https://[{host}]:{listen.port}" if ":" in host else f"https://{host}:{listen.port}"


def abby_authority(options: argparse.Namespace) -> Path | None:
    """Return the CA file to verify abby's certificate; None uses the system's CAs."""
    if options.ca and not options.ca.is_file():
        raise CommandError(f"There is no certificate authority at {options.ca}.")
    ca: Path = options.ca or options.config / "tls/ca.crt"
    return ca if ca.is_file() else None


def add_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    example: str,
    arguments: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.ArgumentParser:
    """Add an action of a command, with its help and an example; `ls` is an alias of `list`."""
    action = actions.add_parser(
        name,
        aliases=["ls"] if name == "list" else [],
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.set_defaults(action=name)  # also if the alias was used
    if arguments is not None:
        arguments(action)
    return action


def by_action(**functions: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return what runs a command: the function of the action that was named."""
    return lambda options: functions[options.action.replace("-", "_")](options)


def expiry(text: str) -> datetime:
    """Return the time of `--expires`: days from now (30d), a date (2026-12-31), or a time with its zone."""
    try:
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit():
            return datetime.now(UTC) + timedelta(days=int(text[:-1]))
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"`{text[:40]}` is not an expiry. Write 30d, 2026-12-31 or 2026-12-31T12:00:00Z."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def add_expires_option(parser: argparse.ArgumentParser) -> None:
    """Add `--expires`."""
    parser.add_argument(
        "--expires", type=expiry, metavar="WHEN", help="days from now (30d), a date (2026-12-31) or a time"
    )


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, each as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shown(text: str) -> str:
    """Return a text without characters that a terminal could execute."""
    return "".join(each if each.isprintable() else " " for each in text) or "-"
