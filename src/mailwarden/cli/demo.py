"""`mailwarden demo`: a deployment of its own with two weeks of made-up mail, for a look at the console."""

import argparse
import asyncio
import io
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import uvloop

from mailwarden.cli import init
from mailwarden.cli.command import Command
from mailwarden.demo.deployment import (
    DATABASE,
    LOCK,
    Demo,
    configuration_of,
    configure,
    create_database,
    fill,
    new_demo,
    only_one,
    prepare_database,
    read_demo,
    remove,
    serve,
    write_demo,
)
from mailwarden.demo.loopback import HOST
from mailwarden.demo.stories import FOLDER as STORIES
from mailwarden.demo.stories import read_book
from mailwarden.engines.clamav import ClamavEngine
from mailwarden.engines.rspamd import RspamdEngine
from mailwarden.errors import CommandError

SERVER = "postgresql:///postgres"
PORT = 9081
_SHOWN = 10  # actions that were left out


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local/state") / "mailwarden-demo"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--remove", action="store_true", help="remove the folder and the database of the demo")
    parser.add_argument("--keep", action="store_true", help="keep both when the demo stops, for the next start")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="folder of the demo (default: %(default)s)"
    )
    parser.add_argument(
        "--postgresql", metavar="URL", default=SERVER,
        help="PostgreSQL, with a role that may create databases (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--database", default=DATABASE, help="name of the database (default: %(default)s)")
    parser.add_argument(
        "--rspamd", default=RspamdEngine.shipped_address, help="address of Rspamd (default: %(default)s)"
    )
    parser.add_argument(
        "--clamav", default=ClamavEngine.shipped_address, help="address of ClamAV (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=PORT, help="abby's port, if it is free (default: %(default)s)")
    parser.add_argument("--stories", type=Path, default=STORIES, help="folder of other stories")


def _run(options: argparse.Namespace) -> int:
    folder: Path = options.folder.absolute()
    with only_one(folder):
        demo = read_demo(folder)
        if demo is None and any(path.name != LOCK for path in folder.iterdir()):
            raise CommandError(f"{folder} is not the folder of a demo: name another by --folder.")
        if demo is not None and (options.remove or not demo.seeded):
            _remove(folder, demo)
            demo = None
        try:
            if not options.remove:
                _start(folder, demo, options)
        finally:
            if not any(path.name != LOCK for path in folder.iterdir()):
                shutil.rmtree(folder)
    return 0


def _start(folder: Path, kept: Demo | None, options: argparse.Namespace) -> None:
    """Make the demo unless one was kept, serve it until Ctrl-C, and remove it."""
    demo = kept or new_demo(options.postgresql, options.port, options.database)
    try:
        if kept is None:
            _make(folder, demo, options)
        serve(folder, demo, _say)
    finally:
        made = read_demo(folder)
        if made is not None and made.seeded and options.keep:
            _say(f"Kept in {folder}; `mailwarden demo --remove` removes it.")
        elif made is not None:
            _remove(folder, made)


def _make(folder: Path, demo: Demo, options: argparse.Namespace) -> None:
    book = read_book(options.stories)
    asyncio.run(create_database(demo))
    write_demo(folder, demo)
    asyncio.run(prepare_database(demo))
    parser = argparse.ArgumentParser()
    init.COMMAND.arguments(parser)
    words = [
        str(configuration_of(folder)),
        "--database-url",
        demo.database_url,
        "--no-database",
        "--smtp",
        "afterQueue",
    ]
    words += ["--host", HOST, "--abby-port", str(demo.abby_port), "--guard-port", str(demo.guard_port)]
    words += ["--rspamd", options.rspamd, "--clamav", options.clamav]
    with redirect_stdout(io.StringIO()):
        init.COMMAND.run(parser.parse_args(words))
    configure(folder, demo, book)
    seeded = uvloop.run(fill(folder, demo, book, _say))
    _say(f"{seeded.messages} messages and {seeded.actions} actions in {seeded.seconds:.0f} s")
    for line in seeded.skipped[:_SHOWN]:
        _say(f"left out: {line}")


def _remove(folder: Path, demo: Demo) -> None:
    asyncio.run(remove(folder, demo))
    _say(f"Removed the database {demo.database} and the content of {folder}.")


def _say(line: str) -> None:
    print(line, flush=True)


COMMAND = Command(example="mailwarden demo", arguments=_arguments, run=_run)
