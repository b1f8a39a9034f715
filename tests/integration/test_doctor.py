"""`mailwarden doctor`: what learning needs is told with everything else."""

from pathlib import Path

import pytest

from mailwarden.cli.doctor import examine
from mailwarden.cli.main import main
from rig.engines import Engines
from rig.rspamd import PASSWORD


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "made"), "--no-database"]) == 0
    return tmp_path / "made"


def teach(folder: Path, controller: str, redis: str) -> None:
    """Have the folder's guard taught by these."""
    file = folder / "guard" / "core" / "guard.yml"
    lines = ("learning:", f'  controller: "{controller}"', f'  password: "{PASSWORD}"', f'  redis: "{redis}"', "")
    file.write_text(file.read_text() + "\n".join(lines))


async def look(folder: Path) -> dict[str, tuple[bool, str]]:
    return {line.name: (line.well, line.seen) async for line in examine(folder)}


async def test_the_key_of_kept_messages_must_be_there_and_the_same_for_both(folder: Path):
    name, key = "key of kept messages", folder / "secrets" / "contents"
    assert (await look(folder))[name] == (True, str(key))
    assert "learning.redis" not in await look(folder), "nothing is learned, so nobody is asked"

    abby = folder / "abby" / "abby" / "abby.yml"
    (folder / "secrets" / "other").write_text("o" * 64)
    abby.write_text(abby.read_text().replace("key: secrets/contents", "key: secrets/other"))
    assert (await look(folder))[name] == (False, "secrets/contents and secrets/other differ")

    key.unlink()
    well, seen = (await look(folder))[name]
    assert not well
    assert "cannot be read" in seen


async def test_those_who_learn_are_asked(folder: Path, engines: Engines):
    teach(folder, engines.rspamd.controller_address, engines.redis.url)
    seen = await look(folder)
    assert seen["learning.controller"] == (True, f"Rspamd's controller at {engines.rspamd.controller_address}")
    well, redis = seen["learning.redis"]
    assert well
    assert redis.startswith("Redis ")


async def test_those_who_learn_and_do_not_answer_are_told(folder: Path):
    teach(folder, "tcp:127.0.0.1:9", "redis://secret@127.0.0.1:9/0")
    seen = await look(folder)
    assert not seen["learning.controller"][0]
    well, redis = seen["learning.redis"]
    assert not well
    assert "secret" not in redis
