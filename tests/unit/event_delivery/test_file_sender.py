"""Files of events: moved by a log rotation, full disks, names outside of the folder."""

import asyncio
import errno
import os
import time
from pathlib import Path
from threading import Event

import pytest

from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery import file_sender
from mailwarden.event_delivery.file_sender import FileSender
from mailwarden.event_delivery.http_client import DeliveryFailed


async def test_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    sender = FileSender(tmp_path / "events", "siem.ndjson")
    await sender.send([b"1", b"2"])
    file = tmp_path / "events" / "siem.ndjson"
    file.rename(tmp_path / "old")
    await sender.send([b"3"])
    file.unlink()
    await sender.send([b"4"])
    await sender.close()
    assert (tmp_path / "old").read_bytes() == b"1\n2\n"
    assert file.read_bytes() == b"4\n"
    assert file.stat().st_mode & 0o777 == 0o640


async def test_every_batch_is_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised: list[int] = []
    monkeypatch.setattr(os, "fsync", synchronised.append)
    sender = FileSender(tmp_path, "siem.ndjson")
    await sender.send([b"1"])
    await sender.send([b"2", b"3"])
    assert len(synchronised) == 2


async def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = FileSender(tmp_path, "siem.ndjson")
    await sender.send([b"1"])
    written = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(handle, data[:3])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(DeliveryFailed, match="No space left"):
            await sender.send([b"second"])
    await sender.send([b"second"])
    assert (tmp_path / "siem.ndjson").read_bytes() == b"1\nsecond\n"


async def test_half_a_line_of_a_crash_does_not_join_the_next_event(tmp_path: Path) -> None:
    file = tmp_path / "siem.ndjson"
    file.write_bytes(b'{"id":1}\n{"id"')
    sender = FileSender(tmp_path, file.name)
    await sender.send([b'{"id":2}'])
    await sender.send([b'{"id":3}'])
    await sender.close()
    assert file.read_bytes() == b'{"id":1}\n{"id"\n{"id":2}\n{"id":3}\n'


async def test_a_cancelled_write_ends_before_its_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, began, go_on, synchronised = FileSender(tmp_path, "siem.ndjson"), Event(), Event(), os.fsync

    def slow(handle: int) -> None:
        began.set()
        go_on.wait(5)
        synchronised(handle)  # fails if the descriptor was closed
        ended.append("written")

    def close(handle: int) -> None:
        ended.append("closed")
        closed(handle)

    ended: list[str] = []
    closed = os.close
    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(os, "close", close)
    writing = asyncio.create_task(sender.send([b"1"]))
    await asyncio.to_thread(began.wait, 5)
    writing.cancel()
    closing = asyncio.create_task(sender.close())
    await asyncio.sleep(0.05)
    assert ended == []
    go_on.set()
    await closing
    assert ended == ["written", "closed"]


def handle_of(sender: FileSender) -> int | None:
    return sender._handle


async def test_a_disk_that_hangs_fails_its_own_receiver_within_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, synchronised = Event(), os.fsync
    hanging, other = FileSender(tmp_path, "siem.ndjson"), FileSender(tmp_path, "lake.ndjson")
    await hanging.send([b"1"])
    inode = (tmp_path / "siem.ndjson").stat().st_ino

    def fsync(handle: int) -> None:
        if os.fstat(handle).st_ino == inode:
            go_on.wait(20)
        synchronised(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(file_sender, "DEADLINE", 0.2)
    monkeypatch.setattr(file_sender, "CLOSE_DEADLINE", 0.2)
    began = time.monotonic()
    with pytest.raises(DeliveryFailed, match="did not write"):
        await hanging.send([b"2"])
    for _ in range(3):  # no second thread for the same file
        with pytest.raises(DeliveryFailed, match="still waits"):
            await hanging.send([b"3"])
    await other.send([b"a"])
    await hanging.close()
    assert time.monotonic() - began < 5
    assert handle_of(hanging) is not None
    go_on.set()
    async with asyncio.timeout(5):
        while handle_of(hanging) is not None:
            await asyncio.sleep(0.01)
    await other.close()
    assert (tmp_path / "siem.ndjson").read_bytes() == b"1\n2\n"


async def test_a_late_failure_does_not_cut_the_lines_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, file = FileSender(tmp_path, "siem.ndjson"), tmp_path / "siem.ndjson"

    def fail(_: int) -> None:
        with file.open("ab") as others:
            others.write(b"theirs\n")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DeliveryFailed, match="Input/output"):
        await sender.send([b"1"])
    assert file.read_bytes() == b"1\ntheirs\n"


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "siem.ndjson").symlink_to(tmp_path / "other")
    with pytest.raises(DeliveryFailed):
        await FileSender(tmp_path, "siem.ndjson").send([b"1"])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["", "siem", "../abby.yml", "/etc/passwd", "a/b.log", ".log", "a.yml", "a\n.log"])
def test_a_name_outside_of_the_folder_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaViolation, match=r"events\.folder"):
        FileSender(tmp_path, name)
