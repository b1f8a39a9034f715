"""`mailwarden serve abby|guard`: run one of the two processes in the foreground."""

import argparse

from mailwarden.cli.command import Command, add_config_option


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("process", choices=("abby", "guard"), help="which process to run")
    add_config_option(parser)


def _run(arguments: argparse.Namespace) -> int:
    # Each process imports only its own code: guard starts without abby's modules, and abby without guard's.
    if arguments.process == "abby":
        from mailwarden.abby.app import run_abby  # noqa: PLC0415

        return run_abby(arguments.config)
    from mailwarden.guard.app import run_guard  # noqa: PLC0415

    return run_guard(arguments.config)


COMMAND = Command(
    example="mailwarden serve guard --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
