"""`mailwarden serve abby|guard|all`: run one of the two programs, or both in one process, in the foreground."""

import argparse

from mailwarden.cli.command import Command, add_config_option


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process", choices=("abby", "guard", "all"), help="the program to run; `all` runs both in one process"
    )
    add_config_option(parser)


def _run(arguments: argparse.Namespace) -> int:
    # Each process imports only its own code: guard starts without abby's modules, and abby without guard's.
    if arguments.process == "abby":
        from mailwarden.abby.app import run_abby  # noqa: PLC0415

        return run_abby(arguments.config)
    if arguments.process == "guard":
        from mailwarden.guard.app import run_guard  # noqa: PLC0415

        return run_guard(arguments.config)
    from mailwarden.single_process import run_all  # noqa: PLC0415

    return run_all(arguments.config)


COMMAND = Command(
    example="mailwarden serve all --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
