"""`mailwarden config check`: reports all mistakes of the configuration, each with its file, line and key."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from mailwarden.abby import config as abby
from mailwarden.cli.command import Command, add_action, add_config_option
from mailwarden.guard import config as guard
from mailwarden.guard.config import rule_mistakes
from mailwarden.settings.document import NotADocument, load
from mailwarden.settings.reader import Mistake, Mistakes, line_of, read
from mailwarden.settings.reload import merge, sentences


def check(folder: Path) -> list[Mistake]:
    """Return every mistake in the files of the configuration folder; files of absent processes are skipped."""
    mistakes: list[Mistake] = []
    found = False
    for path, kind in ((guard.PATH, guard.GuardConfig), (abby.PATH, abby.AbbyConfig)):
        try:
            if not (folder / path).exists():
                continue
        except OSError as error:  # a folder that this user may not read
            return [Mistake(str(folder), 1, "", f"cannot be read: {error.strerror}")]
        found = True
        try:
            config = read(folder / path, kind)
        except Mistakes as error:
            mistakes += error.mistakes
            continue
        if isinstance(config, guard.GuardConfig):
            mistakes += rule_mistakes(config, folder)
    if not found:
        problem = f"holds neither {guard.PATH} nor {abby.PATH}; make them with `mailwarden init {folder}`"
        mistakes.append(Mistake(str(folder), 1, "", problem))
    return mistakes


def ignored_entries(folder: Path) -> list[Mistake]:
    """Return the configured entries that are valid and have no effect."""
    path = folder / abby.PATH
    try:
        document = load(path) if path.exists() else None
    except (NotADocument, OSError):
        return []  # check() reports it
    providers = document.get("serviceProviders") if isinstance(document, Mapping) else None
    names = [str(name) for name in providers if name != "core"] if isinstance(providers, Mapping) else []
    return [
        Mistake(
            str(path), line_of(providers, name, 1), f"serviceProviders.{name}", "is ignored: abby uses `core` alone"
        )
        for name in names
    ]


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    action = add_action(
        actions,
        "check",
        "report every error with file, line and key",
        "mailwarden config check --config /etc/mailwarden",
    )
    action.add_argument(
        "--since",
        type=Path,
        metavar="FOLDER",
        help="an older copy of the configuration: show which changed keys need a restart",
    )
    add_config_option(action)


def changes_since(older: Path, folder: Path) -> list[str]:
    """Return a line for each key that differs from an older copy of the configuration."""
    lines: list[str] = []
    for path, kind, reloadable in (
        (guard.PATH, guard.GuardConfig, guard.RELOADABLE),
        (abby.PATH, abby.AbbyConfig, abby.RELOADABLE),
    ):
        if (older / path).exists() and (folder / path).exists():
            _, changes = merge(read(older / path, kind), read(folder / path, kind), reloadable)
            lines += [f"{path}: {line}" for line in sentences(changes)]
    return lines


def _run(arguments: argparse.Namespace) -> int:
    mistakes = check(arguments.config)
    for mistake in mistakes:
        print(mistake)
    if mistakes:
        print(f"{len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}.")
        return 1
    for ignored in ignored_entries(arguments.config):
        print(f"warning: {ignored}")
    if arguments.since is not None:
        for line in changes_since(arguments.since, arguments.config):
            print(line)
    print(f"{arguments.config}: no mistakes.")
    return 0


COMMAND = Command(
    example="mailwarden config check --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
