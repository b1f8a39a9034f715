"""`mailwarden serve abby|guard`: run one of the two processes in the foreground."""

import argparse

from mailwarden.abby.app import run_abby
from mailwarden.cli.command import Command, add_config_option
from mailwarden.guard.app import run_guard


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("process", choices=("abby", "guard"), help="which process to run")
    add_config_option(parser)


def _run(arguments: argparse.Namespace) -> int:
    run = {"abby": run_abby, "guard": run_guard}[arguments.process]
    return run(arguments.config)


COMMAND = Command(
    name="serve",
    help="Run abby or guard in the foreground until SIGTERM.",
    example="mailwarden serve guard --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
