"""The mark of a demo: only an empty database gets it, and abby and guard compare it with their configuration."""

import subprocess
import sys
from pathlib import Path

import pytest

from mailwarden.access.demo_mark import DemoMark
from mailwarden.access.users import NewUser, Position, Role, UserStore
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.model.scope import Actor, Scope
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, install_product

ALL = Scope.deployment()


async def test_an_empty_database_becomes_a_demos(database: Database) -> None:
    mark = DemoMark(database)
    await mark.require(demo=False)
    with pytest.raises(CommandError, match="the database is not that of a demo"):
        await mark.require(demo=True)
    await mark.set(ALL)
    await mark.require(demo=True)
    with pytest.raises(CommandError, match="the database is that of a demo"):
        await mark.require(demo=False)


async def test_a_database_in_use_never_becomes_a_demos(database: Database) -> None:
    wanted = NewUser("alice", Position(Role.DEPLOYMENT_ADMINISTRATOR))
    await UserStore(database).create(ALL, wanted, Actor("tests"))
    with pytest.raises(CommandError, match="The database is not empty"):
        await DemoMark(database).set(ALL)
    assert not await DemoMark(database).is_set()


async def test_a_demo_does_not_start_without_its_database() -> None:
    away = Database("postgresql://nobody@127.0.0.1:1/nothing", 1)
    await DemoMark(away).require(demo=False)
    with pytest.raises(CommandError, match="does not start as a demo"):
        await DemoMark(away).require(demo=True)
    await away.close()


@pytest.mark.parametrize(
    ("abby", "guard", "marked", "program", "sentence"),
    [
        ({"demo": True}, {}, False, "abby", "the database is not that of a demo"),
        ({}, {}, True, "abby", "the database is that of a demo"),
        ({"demo": True, "listen": {"host": "0.0.0.0"}}, {}, True, "abby", "needs a loopback address"),
        ({}, {"scanSources": {"smtp": {"nextHop": "192.0.2.1:25"}}}, True, "guard", "names another host (192.0.2.1)"),
    ],
)
def test_a_process_refuses_to_start(
    engines: Engines, database_url: str, tmp_path: Path, abby: Overrides, guard: Overrides, marked: bool,
    program: str, sentence: str,
) -> None:  # fmt: skip
    product = install_product(tmp_path, engines, database_url, abby=abby, guards=(guard,))
    if marked:
        engines.postgresql.execute("INSERT INTO demo_mark VALUES (true)", database_url.rpartition("/")[2])
    code, words = refused("serve", program, "--config", str(product.abby.folder))
    assert code == 2
    assert sentence in words


def refused(*words: str) -> tuple[int, str]:
    """Run the command, and return its code and its error."""
    command = [sys.executable, "-m", "mailwarden", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr
