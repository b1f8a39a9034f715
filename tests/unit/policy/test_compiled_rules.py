"""The compiled policy is the shipped one, or it is passed over."""

import pytest

from mailwarden.policy import rules
from mailwarden.policy.rules import COMPILED, FOLDER, Pieces, load_policy, make_policy, read_policy
from mailwarden.settings.compiled import CompiledFile


@pytest.fixture(scope="module")
def shipped():
    return read_policy(FOLDER)


@pytest.mark.slow
def test_the_policy_is_the_same_compiled_and_read(shipped, tmp_path):
    made = CompiledFile(tmp_path / "policy.msgpack", Pieces, rules._sources)
    made.write(Pieces(shipped.rules, shipped.tags, shipped.verdicts))
    pieces = made.read()
    assert pieces is not None
    assert make_policy(pieces.rules, pieces.tags, pieces.verdicts) == shipped == load_policy()


def test_outdated_compiled_rules_are_ignored(shipped, tmp_path, monkeypatch):
    made = CompiledFile(tmp_path / "policy.msgpack", Pieces, rules._sources)
    assert made.read() is None
    made.file.write_bytes(b"{}")
    assert made.read() is None
    made.write(Pieces(shipped.rules[:1], shipped.tags, shipped.verdicts))
    assert made.read() is not None
    monkeypatch.setattr(made, "digest", lambda: b"another")
    assert made.read() is None


def test_the_digest_has_every_file_that_is_read():
    assert set(FOLDER.rglob("*.yml")) <= set(rules._sources())
    assert COMPILED.file.parent.name == "__pycache__"
