"""`mailwarden doctor`: checks every dependency of this host, one line each, with the remedy for a failure."""

import argparse
import asyncio
import platform
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from mailwarden import __version__
from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.cli.command import Command, add_config_option, print_json
from mailwarden.cli.config import check as check_configuration
from mailwarden.cli.config import ignored_entries
from mailwarden.cli.doctor.host import (
    check_certificates,
    check_folders,
    check_phrases,
    check_sandbox,
    check_secrets,
    check_self_tests,
    check_sources,
    check_text_recognition,
    check_trust,
    check_units,
)
from mailwarden.cli.doctor.report import Check, Host, Line
from mailwarden.cli.doctor.report_mailboxes import check_report_mailboxes
from mailwarden.cli.doctor.scans import check_postfix, check_scans
from mailwarden.cli.doctor.servers import (
    check_database,
    check_engines,
    check_event_receivers,
    check_history_store,
    check_processes,
    check_smtp,
)
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig
from mailwarden.settings.reader import read

# Every check, in the order of the report: files first, then servers, then the processes that need both.
CHECKS: tuple[Check, ...] = (
    check_self_tests,
    check_phrases,
    check_units,
    check_certificates,
    check_trust,
    check_sources,
    check_folders,
    check_secrets,
    check_sandbox,
    check_text_recognition,
    check_database,
    check_history_store,
    check_event_receivers,
    check_engines,
    check_smtp,
    check_report_mailboxes,
    check_postfix,
    check_processes,
    check_scans,
)


async def check_host(folder: Path, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Line]:
    """Yield a line for each dependency of this host's processes."""
    yield Line(True, "version", f"Mailwarden {__version__}, Python {platform.python_version()}")
    mistakes = check_configuration(folder)
    if mistakes:
        for mistake in mistakes:
            yield Line(False, "configuration", str(mistake), "correct it and run `mailwarden config check`")
        return
    yield Line(True, "configuration", f"{folder}: no mistakes")
    for ignored in ignored_entries(folder):
        yield Line(True, "configuration", str(ignored), "remove the entry if no other program reads it", warning=True)
    host = Host(
        folder,
        guard=read(folder / GUARD_PATH, GuardConfig) if (folder / GUARD_PATH).exists() else None,
        abby=read(folder / ABBY_PATH, AbbyConfig) if (folder / ABBY_PATH).exists() else None,
    )
    for check in checks:
        async for line in check(host):
            yield line


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")


async def _report(folder: Path, output: str) -> int:
    """Print the report and return the exit code: 1 if a check failed."""
    lines = []
    async for line in check_host(folder):
        lines.append(line)
        if output == "text":
            print(line, flush=True)
    wrong = sum(not line.well for line in lines)
    if output == "json":
        shown = [{"state": each.state, "name": each.name, "seen": each.seen, "remedy": each.remedy} for each in lines]
        print_json({"well": wrong == 0, "checks": shown})
    else:
        print(f"{wrong} of these need attention." if wrong else "All well.")
    return 1 if wrong else 0


COMMAND = Command(
    example="mailwarden doctor --config /etc/mailwarden",
    arguments=_arguments,
    run=lambda arguments: asyncio.run(_report(arguments.config, arguments.output)),
)
