"""The compiled policy is the shipped one, or it is passed over."""

import pytest

from mailwarden.policy import rules
from mailwarden.policy.rules import FOLDER, load_policy, make_policy, read_compiled, read_policy, write_compiled


@pytest.fixture(scope="module")
def shipped():
    return read_policy(FOLDER)


@pytest.mark.slow
def test_the_policy_is_the_same_compiled_and_read(shipped, tmp_path):
    write_compiled(shipped.rules, shipped.tags, shipped.verdicts, tmp_path / "policy.json")
    pieces = read_compiled(tmp_path / "policy.json")
    assert pieces is not None
    assert make_policy(pieces.rules, pieces.tags, pieces.verdicts) == shipped == load_policy()


def test_outdated_compiled_rules_are_ignored(shipped, tmp_path, monkeypatch):
    file = tmp_path / "policy.json"
    assert read_compiled(file) is None
    file.write_bytes(b"{}")
    assert read_compiled(file) is None
    write_compiled(shipped.rules[:1], shipped.tags, shipped.verdicts, file)
    assert read_compiled(file) is not None
    monkeypatch.setattr(rules, "digest", lambda: "another")
    assert read_compiled(file) is None


def test_the_digest_changes_with_every_file_that_is_read(tmp_path, monkeypatch):
    sources = list(rules._sources())
    assert {path.suffix for path in sources} == {".yml", ".py"}
    assert set(FOLDER.rglob("*.yml")) <= set(sources)
    copies = [tmp_path / path.name for path in sources]
    for path, copy in zip(sources, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(rules, "_sources", lambda: copies)
    seen = {rules.digest()}
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"\n")
        seen.add(rules.digest())
    assert len(seen) == len(copies) + 1
