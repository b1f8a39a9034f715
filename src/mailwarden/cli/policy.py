"""`mailwarden policy`: what another policy would have decided, and whether this one does what is expected of it."""

import argparse

from mailwarden.cli import policy_difference, policy_samples
from mailwarden.cli.command import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, command, text in (
        (
            "diff",
            policy_difference.COMMAND,
            "Show the decisions that other rules or weights would make for stored evidence.",
        ),
        ("test", policy_samples.COMMAND, "Judge sample messages and compare the results with expectations."),
    ):
        action = actions.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.arguments(action)
        action.set_defaults(run_action=command.run)


def _run(options: argparse.Namespace) -> int:
    return int(options.run_action(options))


COMMAND = Command(
    example="mailwarden policy diff --set html.link-mismatch=80",
    arguments=_arguments,
    run=_run,
)
