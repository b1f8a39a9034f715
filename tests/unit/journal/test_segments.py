"""The segments of a journal: order, torn tails, damage, limits and versions."""

import errno
import os
import stat
from pathlib import Path

import pytest

from mailwarden.errors import ConfigurationError
from mailwarden.journal import segments
from mailwarden.journal.format import FORMAT, HEAD_SIZE, Head, Record, encode_head, encode_record, parse
from mailwarden.journal.segments import JournalFull, Limits, Segments

SMALL = Limits(max_bytes=1 << 20, segment_bytes=1_000)


def open_at(folder: Path, limits: Limits = SMALL, version: int = 1) -> Segments:
    return Segments.open(folder, limits, version)


def payloads(first: int, count: int) -> list[bytes]:
    return [f'{{"row":{number}}}'.encode() * 5 for number in range(first, first + count)]


def read_all(journal: Segments) -> tuple[list[bytes], int]:
    """Return all payloads from the position on, and how many rows are missing."""
    found: list[bytes] = []
    missing, number = 0, journal.position
    while number < journal.next:
        chunk = journal.read(number)
        found += [record.payload for record in chunk.records]
        missing += chunk.missing
        number = chunk.following
    return found, missing


def fill(folder: Path, count: int = 40) -> list[bytes]:
    """Write so many rows in groups of four, over several segments, and close the journal."""
    journal, rows = open_at(folder), payloads(0, count)
    for start in range(0, count, 4):
        journal.append(rows[start : start + 4], 1_000 + start)
    journal.close()
    assert len(list(folder.glob("*.journal"))) > 2
    return rows


def test_sent_rows_are_not_read_again_and_their_segments_are_deleted(tmp_path: Path) -> None:
    rows = fill(tmp_path)
    journal = open_at(tmp_path)
    before = journal.size
    journal.advance(21)
    assert journal.size < before
    journal.close()
    journal = open_at(tmp_path)
    assert read_all(journal) == (rows[20:], 0)
    journal.advance(journal.next)
    assert (journal.waiting, journal.size) == (0, 0)
    assert not list(tmp_path.glob("*.journal")), "a sent row stays on disk"
    journal.close()
    assert open_at(tmp_path).next == 41, "a number is used twice"


def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    rows = fill(tmp_path)
    last = max(tmp_path.glob("*.journal"))
    whole = last.read_bytes()
    last.write_bytes(whole + encode_record(Record(41, 1, b"half of a row"))[:-3])
    journal = open_at(tmp_path)
    assert journal.torn_bytes > 0
    assert last.read_bytes() == whole
    journal.append([b"next"], 1)
    assert read_all(journal) == ([*rows, b"next"], 0)


@pytest.mark.parametrize("place", ["payload", "length", "mark", "header"])
def test_a_damaged_row_is_counted_and_skipped(tmp_path: Path, place: str) -> None:
    rows = fill(tmp_path)
    path = sorted(tmp_path.glob("*.journal"))[1]
    data = bytearray(path.read_bytes())
    second = data.find(b"\xffMW\xff", HEAD_SIZE + 1)
    data[{"payload": second + 40, "length": second + 4, "mark": second, "header": 2}[place]] ^= 0x55
    path.write_bytes(data)
    found, missing = read_all(open_at(tmp_path))
    if place == "header":
        assert (found, missing) == (rows, 0), "the rows behind a damaged header are whole"
    else:
        assert missing == 1
        assert len(found) == len(rows) - 1
        assert set(found) < set(rows)


def test_a_removed_segment_is_counted(tmp_path: Path) -> None:
    rows = fill(tmp_path)
    sorted(tmp_path.glob("*.journal"))[1].unlink()
    found, missing = read_all(open_at(tmp_path))
    assert missing > 0
    assert len(found) + missing == len(rows)


def test_the_limit_of_bytes_refuses_rows_and_keeps_the_old(tmp_path: Path) -> None:
    journal = open_at(tmp_path, Limits(max_bytes=2_000, segment_bytes=1_000))
    kept = 8
    for number in range(kept):
        journal.append(payloads(number, 1), 1)
    with pytest.raises(JournalFull, match="maxBytes"):
        journal.append([b"x" * 1_500], 1)
    assert journal.size <= 2_000
    assert read_all(journal) == (payloads(0, kept), 0)
    journal.advance(journal.next)
    journal.append([b"room again"], 1)


def test_too_little_free_space_refuses_rows(tmp_path: Path) -> None:
    journal = open_at(tmp_path, Limits(max_bytes=1 << 20, min_free=1 << 60))
    with pytest.raises(JournalFull, match="minFreeBytes"):
        journal.append([b"row"], 1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_loses_the_group_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    journal = open_at(tmp_path)
    journal.append([b"before"], 1)
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        if offset > HEAD_SIZE + 100:
            raise OSError(code, os.strerror(code))
        return real(file, data[:10], offset)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(JournalFull, match="full"):
        journal.append([b"x" * 200], 1)
    monkeypatch.undo()
    journal.append([b"after"], 1)
    assert read_all(journal) == ([b"before", b"after"], 0)
    journal.close()
    assert read_all(open_at(tmp_path)) == ([b"before", b"after"], 0)


def test_a_failed_sync_is_tried_again_in_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_at(tmp_path)
    journal.append([b"before"], 1)
    real, failing = os.fdatasync, iter([True])

    def fail_once(file: int) -> None:
        if next(failing, False):
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    journal.append([b"row"], 1)
    assert len(list(tmp_path.glob("*.journal"))) == 2
    assert read_all(journal) == ([b"before", b"row"], 0)


def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    fill(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_a_second_guard_is_refused(tmp_path: Path) -> None:
    journal = open_at(tmp_path)
    with pytest.raises(ConfigurationError, match="used by another guard"):
        open_at(tmp_path)
    journal.close()
    open_at(tmp_path).close()


@pytest.mark.parametrize("head", [Head(1, 1, FORMAT + 1), Head(2, 1)])
def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path, head: Head) -> None:
    path = tmp_path / f"{1:020d}.journal"
    path.write_bytes(encode_head(head) + encode_record(Record(1, 1, b"row")))
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="from a newer Mailwarden"):
        open_at(tmp_path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        open_at(tmp_path / "file" / "journal")


def test_a_mark_inside_a_payload_is_no_record() -> None:
    inner = encode_record(Record(7, 1, b"inner"))
    outer = encode_record(Record(1, 1, inner + b"\xffMW\xff"))
    assert [record.number for record in parse(outer).records] == [1]


def test_rows_stay_when_a_file_cannot_be_opened_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(tmp_path)
    journal, real = open_at(tmp_path), segments._read

    def no_descriptor(path: Path, start: int, size: int) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(segments, "_read", no_descriptor)
    with pytest.raises(OSError, match="Too many"):
        journal.read(journal.position)
    monkeypatch.setattr(segments, "_read", real)
    assert read_all(journal) == (rows, 0)
    journal.close()


def break_block(monkeypatch: pytest.MonkeyPatch, path: Path, block: int) -> None:
    """Let one block of a file be unreadable."""
    real, damaged = os.pread, path.stat().st_ino

    def read(file: int, size: int, offset: int) -> bytes:
        if os.fstat(file).st_ino == damaged and offset < (block + 1) * 4096 and offset + size > block * 4096:
            raise OSError(errno.EIO, "Input/output error")
        return real(file, size, offset)

    monkeypatch.setattr(os, "pread", read)


def test_an_unreadable_block_costs_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = Limits(max_bytes=1 << 20, segment_bytes=20_000)
    journal, rows = open_at(tmp_path, large), payloads(0, 600)
    for start in range(0, len(rows), 10):
        journal.append(rows[start : start + 10], 1)
    first = min(tmp_path.glob("*.journal"))
    break_block(monkeypatch, first, 2)
    found, missing = read_all(journal)
    assert 0 < missing <= 4096 // 75 + 2
    assert found == [row for row in rows if row in set(found)]
    assert len(found) + missing == len(rows)
    journal.advance(journal.next)
    assert not first.exists()
    assert Path(f"{first}.damaged").exists(), "the damaged segment is kept"
    journal.close()


@pytest.mark.parametrize("place", ["head", "tail"])
def test_guard_starts_with_an_unreadable_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    journal, rows = open_at(tmp_path, Limits(max_bytes=1 << 20)), payloads(0, 400)
    journal.append(rows, 1)
    journal.close()
    [path] = tmp_path.glob("*.journal")
    break_block(monkeypatch, path, 0 if place == "head" else path.stat().st_size // 4096)
    journal = open_at(tmp_path)
    found, missing = read_all(journal)
    assert len(found) > 300
    assert (missing > 0) == (place == "head")
    assert (journal.damaged_tail > 0) == (place == "tail")
    journal.close()


def test_few_damaged_segments_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, 160)
    paths = sorted(tmp_path.glob("*.journal"))
    for path in paths:
        path.write_bytes(path.read_bytes()[: HEAD_SIZE + 5] + b"\0" * 20 + path.read_bytes()[HEAD_SIZE + 25 :])
    journal = open_at(tmp_path)
    read_all(journal)
    journal.advance(journal.next)
    kept = sorted(tmp_path.glob("*.damaged"))
    assert len(paths) > segments.MAX_DAMAGED == len(kept)
    journal.close()


def test_a_damaged_row_at_the_end_is_counted(tmp_path: Path) -> None:
    rows = fill(tmp_path)
    last = max(tmp_path.glob("*.journal"))
    data = bytearray(last.read_bytes())
    data[-1] ^= 0x55
    last.write_bytes(data)
    journal = open_at(tmp_path)
    assert journal.damaged_tail == 1
    assert Path(f"{last}.damaged").read_bytes() == bytes(data)
    assert read_all(journal) == (rows[:-1], 0)
    journal.close()
