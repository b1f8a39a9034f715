"""The command `mailwarden`: finds the subcommand and runs it."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from mailwarden import __version__
from mailwarden.cli.command import Command
from mailwarden.errors import MailwardenError

# Each command is the module of its name in this folder, with `_` for `-`. It is imported only when it is used, so that
# every start is quick.
COMMANDS: Mapping[str, str] = {
    "demo": "Show a deployment of its own with two weeks of made-up mail, on this host alone.",
    "init": "Create certificates, configuration, a first token and the database schema.",
    "serve": "Run abby or guard in the foreground until SIGTERM.",
    "scan": "Scan one message and print the reasons for its verdict.",
    "tenants": "Create and show tenants and their recipient domains, and override rule weights.",
    "keys": "Create, show, rotate and revoke API keys.",
    "users": "Invite console users, show, disable and enable them.",
    "policy": "Compare policies over stored evidence, and test a policy with sample messages.",
    "training": "Report messages as phishing, spam or good to train a tenant's statistics, and undo it.",
    "cases": "Show the cases of user reports, and close them with an outcome.",
    "quarantine": "Show, release, delete and export held messages.",
    "receivers": "Add, show, test and remove receivers of events: webhooks, syslog and files.",
    "lists": "Show and change lists over the List API; import and export files.",
    "feeds": "Subscribe to feeds that fill block lists; show, update, approve and reject them.",
    "history": "Send rejected rows of history again, prepare ClickHouse, and migrate rows between the stores.",
    "secrets": "Show, rotate and drop the keys of stored messages and of the pepper.",
    "engines": "Install the settings that the engines and Postfix need; overwrite none.",
    "doctor": "Test every dependency of this host's processes, one line each.",
    "config": "Check the configuration.",
    "database": "Update the database schema.",
    "support-bundle": "Write facts for a support request, without secrets and addresses.",
    "compile": "Compile the shipped rules and phrases, so that processes start faster.",
    "popular-domains": "Make the table of popular domains from lists that you downloaded.",
    "backup": "Write database, held messages, secrets and configuration into one archive, or verify it.",
    "restore": "Restore an archive of `backup` into an empty database and empty folders.",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one subcommand; an error is printed as a sentence on standard error, with exit code 2."""
    given = list(sys.argv[1:] if words is None else words)
    arguments = build_parser(given).parse_args(given)
    try:
        return int(arguments.run(arguments))
    except MailwardenError as error:
        print(f"mailwarden: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does. Writing the buffered rest would raise again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def load_command(name: str) -> Command:
    module = importlib.import_module(f"mailwarden.cli.{name.replace('-', '_')}")
    command: Command = module.COMMAND
    return command


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser with the arguments of the selected command."""
    parser = argparse.ArgumentParser(
        prog="mailwarden",
        description="Self-hosted email security: send a message, get a decision, a verdict and the reasons.",
        epilog="Try: mailwarden COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"mailwarden {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = words[0] if words else ""
    for name, text in COMMANDS.items():
        if name != named:
            subparsers.add_parser(name, help=text)
            continue
        command = load_command(name)
        subparser = subparsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
