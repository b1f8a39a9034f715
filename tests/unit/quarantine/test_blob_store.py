"""Blobs as files: synchronised before a write returns, and clean after a failure."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine import blob_store
from mailwarden.quarantine.blob_store import ABANDONED, PARTS, FilesystemStore


def files_in(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


async def test_file_and_folder_are_synchronised_around_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deeds: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synchronise(file: int) -> None:
        deeds.append("folder" if Path(f"/proc/self/fd/{file}").is_dir() else "file")
        fsync(file)

    def rename(source: Path, target: Path) -> None:
        deeds.append("rename")
        replace(source, target)

    store = FilesystemStore(tmp_path)
    await store.put("a/b/first", [b"makes the folders"])
    monkeypatch.setattr(os, "fsync", synchronise)
    monkeypatch.setattr(os, "replace", rename)
    await store.put("a/b/c", [b"x"])
    assert deeds == ["file", "rename", "folder"]


async def test_new_folders_are_synchronised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    monkeypatch.setattr(blob_store, "_synchronise", lambda folder: seen.append(folder.name))
    await FilesystemStore(tmp_path / "vault").put("a/b/c", [b"x"])
    assert {tmp_path.name, "vault", "a", "b"} <= set(seen)


async def test_an_existing_folder_is_synchronised_at_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    seen: list[str] = []
    monkeypatch.setattr(blob_store, "_synchronise", lambda folder: seen.append(folder.name))
    store = FilesystemStore(tmp_path)
    await store.put("a/b/c", [b"x"])
    assert {tmp_path.name, "a", "b"} <= set(seen)
    seen.clear()
    await store.put("a/b/d", [b"x"])
    assert seen == ["b"], "once is enough"


@pytest.mark.parametrize("failing", ["file", "folder"])
async def test_a_failed_fsync_fails_the_write_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
):
    store, fsync = FilesystemStore(tmp_path), os.fsync
    await store.put("before", [b"x"])
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
        await store.put("a/b", [b"x"])
    assert files_in(tmp_path) == ["before"]
    monkeypatch.setattr(os, "fsync", synchronise)
    await store.put("a/b", [b"x"])
    needed = {tmp_path / "a"} | ({tmp_path} if failing == "folder" else set())
    assert needed <= set(synchronised)


async def test_the_number_of_remembered_folders_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blob_store, "MAX_SYNCED", 4)
    store = FilesystemStore(tmp_path)
    for number in range(20):
        await store.put(f"{number}/x", [b"x"])
    assert len(store._synced) <= 4
    assert len(files_in(tmp_path)) == 20


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = FilesystemStore(tmp_path)
    await store.put("kept", [b"before"])

    def write(_: int, __: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageUnavailable, match="No space left"):
        await store.put("kept", [b"after"])
    monkeypatch.undo()
    assert files_in(tmp_path) == ["kept"]
    assert [piece async for piece in store.get("kept")] == [b"before"]


async def test_pieces_that_cannot_be_read_leave_nothing_behind(tmp_path: Path):
    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageUnavailable):
        await FilesystemStore(tmp_path).put("a/b", pieces())
    assert files_in(tmp_path) == []


async def test_files_are_private_to_the_user(tmp_path: Path):
    await FilesystemStore(tmp_path / "vault").put("a/b", [b"x"])
    assert (tmp_path / "vault/a/b").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "vault/a").stat().st_mode & 0o777 == 0o700


async def test_abandoned_writes_are_removed_and_current_ones_stay(tmp_path: Path):
    store = FilesystemStore(tmp_path)
    (tmp_path / PARTS).mkdir()
    old, new = tmp_path / PARTS / "old", tmp_path / PARTS / "new"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    before = time.time() - ABANDONED - 60
    os.utime(old, (before, before))
    assert [item async for item in store.blobs()] == []
    assert (old.exists(), new.exists()) == (False, True)


async def test_blobs_yields_more_files_than_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blob_store, "BATCH", 3)
    store = FilesystemStore(tmp_path)
    for number in range(8):
        await store.put(f"a/{number}", [b"x"])
    assert sorted([item.name async for item in store.blobs()]) == [f"a/{number}" for number in range(8)]
