"""The folder of the quarantine: synchronised before it answers, and clean after whatever goes wrong."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine import folder as folder_module
from mailwarden.quarantine.folder import ABANDONED, PARTS, FolderShelf


def files_in(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


async def test_a_file_and_its_folder_are_synchronised_before_and_after_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deeds: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synchronise(file: int) -> None:
        deeds.append("folder" if Path(f"/proc/self/fd/{file}").is_dir() else "file")
        fsync(file)

    def rename(source: Path, target: Path) -> None:
        deeds.append("rename")
        replace(source, target)

    shelf = FolderShelf(tmp_path)
    await shelf.put("a/b/first", [b"makes the folders"])
    monkeypatch.setattr(os, "fsync", synchronise)
    monkeypatch.setattr(os, "replace", rename)
    await shelf.put("a/b/c", [b"x"])
    assert deeds == ["file", "rename", "folder"]


async def test_new_folders_are_synchronised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    monkeypatch.setattr(folder_module, "_synchronise", lambda folder: seen.append(folder.name))
    await FolderShelf(tmp_path / "vault").put("a/b/c", [b"x"])
    assert {tmp_path.name, "vault", "a", "b"} <= set(seen)


async def test_a_folder_that_somebody_made_and_may_not_have_synchronised_is_synchronised_at_its_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a" / "b").mkdir(parents=True)
    seen: list[str] = []
    monkeypatch.setattr(folder_module, "_synchronise", lambda folder: seen.append(folder.name))
    shelf = FolderShelf(tmp_path)
    await shelf.put("a/b/c", [b"x"])
    assert {tmp_path.name, "a", "b"} <= set(seen)
    seen.clear()
    await shelf.put("a/b/d", [b"x"])
    assert seen == ["b"], "once is enough"


@pytest.mark.parametrize("failing", ["file", "folder"])
async def test_what_cannot_be_synchronised_is_not_kept_and_is_synchronised_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
):
    shelf, fsync = FolderShelf(tmp_path), os.fsync
    await shelf.put("before", [b"x"])
    synchronised: list[Path] = []

    def fail(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").is_dir() is (failing == "folder"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    def synchronise(file: int) -> None:
        synchronised.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageUnavailable, match="Input/output"):
        await shelf.put("a/b", [b"x"])
    assert files_in(tmp_path) == ["before"]
    monkeypatch.setattr(os, "fsync", synchronise)
    await shelf.put("a/b", [b"x"])
    needed = {tmp_path / "a"} | ({tmp_path} if failing == "folder" else set())
    assert needed <= set(synchronised)


async def test_no_more_folders_are_remembered_than_is_sensible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_module, "MAX_SOUND", 4)
    shelf = FolderShelf(tmp_path)
    for number in range(20):
        await shelf.put(f"{number}/x", [b"x"])
    assert len(shelf._sound) <= 4
    assert len(files_in(tmp_path)) == 20


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shelf = FolderShelf(tmp_path)
    await shelf.put("kept", [b"before"])

    def write(_: int, __: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageUnavailable, match="No space left"):
        await shelf.put("kept", [b"after"])
    monkeypatch.undo()
    assert files_in(tmp_path) == ["kept"]
    assert [piece async for piece in shelf.get("kept")] == [b"before"]


async def test_pieces_that_cannot_be_read_leave_nothing_behind(tmp_path: Path):
    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageUnavailable):
        await FolderShelf(tmp_path).put("a/b", pieces())
    assert files_in(tmp_path) == []


async def test_what_is_written_is_for_this_user_alone(tmp_path: Path):
    await FolderShelf(tmp_path / "vault").put("a/b", [b"x"])
    assert (tmp_path / "vault/a/b").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "vault/a").stat().st_mode & 0o777 == 0o700


async def test_what_a_crash_left_half_written_is_tidied_up_and_what_is_being_written_is_not(tmp_path: Path):
    shelf = FolderShelf(tmp_path)
    (tmp_path / PARTS).mkdir()
    old, new = tmp_path / PARTS / "old", tmp_path / PARTS / "new"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    before = time.time() - ABANDONED - 60
    os.utime(old, (before, before))
    assert [item async for item in shelf.items()] == []
    assert (old.exists(), new.exists()) == (False, True)


async def test_more_files_than_are_looked_at_at_once_are_all_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_module, "BATCH", 3)
    shelf = FolderShelf(tmp_path)
    for number in range(8):
        await shelf.put(f"a/{number}", [b"x"])
    assert sorted([item.name async for item in shelf.items()]) == [f"a/{number}" for number in range(8)]
