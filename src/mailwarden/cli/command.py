"""What a subcommand is: its example, its arguments, and what it does."""

import argparse
import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mailwarden.model.actor import Actor

CONFIG_VARIABLE = "MAILWARDEN_CONFIG"
DEFAULT_CONFIG = "/etc/mailwarden"


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand; `run` returns the exit code and raises CommandError where it cannot go on."""

    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add `--config`, the folder that holds abby/, guard/ and tls/."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FOLDER",
        default=Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG)),
        help=f"configuration folder (default: ${CONFIG_VARIABLE}, or {DEFAULT_CONFIG})",
    )


def operator() -> Actor:
    """Return who runs the command, as the audit names them."""
    return Actor(f"cli:{getpass.getuser()}")
