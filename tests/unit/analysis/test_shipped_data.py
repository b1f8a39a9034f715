"""The compiled form of the analyzers' YAML files."""

from pathlib import Path

import msgspec
import pytest
from ruamel.yaml import YAML

from mailwarden.analysis import shipped_data
from mailwarden.settings.compiled import CompiledFile

KIND = dict[str, msgspec.Raw]


def test_the_compiled_file_is_that_of_the_current_files() -> None:
    known = shipped_data.COMPILED.read()
    assert known is not None, "run `mailwarden compile`"
    assert set(known) == set(shipped_data.NAMES)
    for name, content in known.items():
        written = YAML(typ="safe").load((shipped_data.FOLDER / name).read_text("utf-8"))
        assert msgspec.msgpack.decode(content) == written


def test_a_changed_file_is_read_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "links" / "hosts.yml"
    source.parent.mkdir()
    source.write_text("a: before\n")
    made = CompiledFile(tmp_path / "data.msgpack", KIND, lambda: [source])
    monkeypatch.setattr(shipped_data, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped_data, "COMPILED", made)
    monkeypatch.setattr(shipped_data, "_compiled", made.read)
    made.write({"links/hosts.yml": msgspec.Raw(msgspec.msgpack.encode({"a": "compiled"}))})
    assert shipped_data.read_shipped("links/hosts.yml", dict[str, str]) == {"a": "compiled"}
    source.write_text("a: after\n")
    assert shipped_data.read_shipped("links/hosts.yml", dict[str, str]) == {"a": "after"}
