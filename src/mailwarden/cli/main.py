"""The command `mailwarden`: finds the subcommand and runs it."""

import argparse
import sys
from collections.abc import Sequence

from mailwarden import __version__
from mailwarden.cli import config, database, doctor, init, scan, serve, tenants
from mailwarden.cli.command import Command
from mailwarden.errors import MailwardenError

COMMANDS: tuple[Command, ...] = (
    init.COMMAND,
    serve.COMMAND,
    scan.COMMAND,
    tenants.COMMAND,
    doctor.COMMAND,
    config.COMMAND,
    database.COMMAND,
)


def main(words: Sequence[str] | None = None) -> int:
    """Run one subcommand; an error is a sentence on standard error and exit code 2."""
    arguments = build_parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except MailwardenError as error:
        print(f"mailwarden: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mailwarden",
        description="Email security over HTTPS: a message goes in, a decision, a verdict and the reasons come out.",
        epilog="Try: mailwarden COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"mailwarden {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=f"Example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
