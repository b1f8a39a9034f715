"""A compiled file is used only if it was made from the current sources, and read completely."""

from pathlib import Path

import pytest

from mailwarden.analysis.text import phrases
from mailwarden.policy import rules
from mailwarden.settings.compiled import CompiledFile


def compiled(folder: Path, *sources: Path) -> CompiledFile[tuple[str, ...]]:
    return CompiledFile(folder / "made" / "words.msgpack", tuple[str, ...], lambda: sources)


def test_outdated_or_damaged_compiled_files_are_ignored(tmp_path: Path) -> None:
    source = tmp_path / "words.yml"
    source.write_text("one")
    words = compiled(tmp_path, source)
    assert words.read() is None
    words.write(("one",))
    assert words.read() == ("one",)
    written = words.file.read_bytes()
    for damaged in (b"", b"{}", written[:-1], written.replace(b"\n", b""), b"0" + written[1:]):
        words.file.write_bytes(damaged)
        assert words.read() is None
    words.file.write_bytes(written)
    assert words.read() == ("one",)
    source.write_text("two")
    assert words.read() is None


@pytest.mark.parametrize("module", [rules, phrases])
def test_the_digest_changes_with_every_file_that_is_read(module, tmp_path: Path) -> None:
    sources = list(module._sources())
    assert {path.suffix for path in sources} == {".yml", ".py"}
    copies = [tmp_path / path.name for path in sources]
    for path, copy in zip(sources, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    words = compiled(tmp_path, *copies)
    seen = {words.digest()}
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"\n")
        seen.add(words.digest())
    assert len(seen) == len(copies) + 1
