"""The rooms: a room imports only rooms below it."""

import os
from pathlib import Path

import pytest
from importlinter import cli

from tests.house.tree import ROOT


def test_a_room_imports_only_rooms_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = cli.lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert code == cli.EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_every_room_has_its_place() -> None:
    text = (ROOT / ".importlinter").read_text("utf-8")
    rooms = {entry.name for entry in os.scandir(ROOT / "src" / "mailwarden") if entry.is_dir() and entry.name[0] != "_"}
    assert {room for room in rooms if room not in text} == set()
    assert Path(ROOT / "src" / "mailwarden" / "py.typed").exists()
