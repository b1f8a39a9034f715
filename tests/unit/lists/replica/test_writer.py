"""Writing the replica: changes after a copy, all or nothing, and the field of bits that only ever saves a look."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.lists.replica.file import ReplicaFilter, ReplicaFolder, size_for
from mailwarden.lists.replica.matcher import Replica
from mailwarden.lists.replica.writer import EntryRow, ListChange, ListRow, Position, ReplicaWriter
from tests.samples.replicas import POSITION, write_replica

ACME = uuid4()
URLS = ListRow(1, None, "url-block", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_replica(tmp_path, {(None, "url-block"): ["a.example", "b.example"]})
    return tmp_path


@pytest.fixture
def writer(folder: Path) -> Iterator[ReplicaWriter]:
    writer = ReplicaWriter(folder)
    assert writer.take()
    assert writer.position() == POSITION
    yield writer
    writer.close()


@pytest.fixture
def replica(folder: Path) -> Iterator[Replica]:
    replica = Replica(folder, look=0.0)
    yield replica
    replica.close()


def row(entry: str, comment: str = "") -> EntryRow:
    return EntryRow(entry, None, json.dumps(comment))


def met(replica: Replica, *candidates: str) -> list[str]:
    return [match.entry for match in replica.match(ACME, {"url-block": candidates})]


def test_a_change_is_seen_at_once_by_a_reader_that_had_the_file_open(writer: ReplicaWriter, replica: Replica) -> None:
    assert met(replica, "a.example", "c.example") == ["a.example"]
    writer.apply([ListChange(1, URLS, [row("c.example", "new")], ["a.example"])])
    assert met(replica, "a.example", "c.example") == ["c.example"]
    writer.apply([ListChange(1, None)])
    assert met(replica, "b.example", "c.example") == []
    assert replica.in_use(ACME) == frozenset()


def test_a_change_that_fails_changes_nothing_and_the_next_one_works(writer: ReplicaWriter, replica: Replica) -> None:
    hashes = ListRow(2, None, "file-hash-block", 1)
    bad = [ListChange(1, URLS, [row("c.example", "lost")]), ListChange(2, hashes, [row("no hash")])]
    with pytest.raises(ValueError, match="hex"):
        writer.apply(bad)
    assert met(replica, "a.example", "c.example") == ["a.example"]
    assert writer.position() == POSITION
    writer.apply([ListChange(1, URLS, [row("c.example", "kept")])])
    assert replica.match(ACME, {"url-block": ["c.example"]})[0].comment == "kept"


def test_the_position_is_kept_in_the_file(writer: ReplicaWriter, folder: Path) -> None:
    writer.advance(Position("here", "7:9:8", 5.0))
    writer.close()
    again = ReplicaWriter(folder)
    assert again.take()
    assert again.position() == Position("here", "7:9:8", 5.0)
    again.close()


def test_only_one_writes(writer: ReplicaWriter, folder: Path) -> None:
    other = ReplicaWriter(folder)
    assert not other.take()
    writer.close()
    assert other.take()
    other.close()


def test_an_invalid_replica_needs_a_full_copy(tmp_path: Path) -> None:
    writer = ReplicaWriter(tmp_path)
    assert writer.take()
    assert writer.position() is None
    (tmp_path / "current").write_text("{")
    assert writer.position() is None
    (tmp_path / "current").write_text('{"entries": "replica-gone.sqlite"}')
    assert writer.position() is None
    writer.close()


def test_comments_beyond_those_kept_once_lie_beside_their_entries(
    writer: ReplicaWriter, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailwarden.lists.replica.writer.MAX_COMMENTS", 2)
    for number in range(4):
        writer.apply([ListChange(1, URLS, [row(f"c{number}.example", f"why {number}")])])
        writer.close_file()
        assert writer.position() is not None
    found = replica.match(ACME, {"url-block": [f"c{number}.example" for number in range(4)]})
    assert [match.comment for match in found] == [f"why {number}" for number in range(4)]


def test_after_a_boot_of_the_host_the_file_is_asked_until_the_bits_are_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bits,) = folder.glob("*.bits")
    bits.write_bytes(bytes(bits.stat().st_size))  # as if the host went down before the kernel wrote them
    monkeypatch.setattr("mailwarden.lists.replica.matcher.boot_id", lambda: "another")
    monkeypatch.setattr("mailwarden.lists.replica.writer.boot_id", lambda: "another")
    replica = Replica(folder, look=0.0)
    assert met(replica, "a.example") == ["a.example"]
    writer = ReplicaWriter(folder)
    assert writer.take()
    assert writer.position() is not None
    writer.refresh_filter()
    pointer = ReplicaFolder(folder).pointer()
    assert pointer is not None
    assert pointer.boot == "another"
    assert met(replica, "a.example", "c.example") == ["a.example"]
    writer.apply([ListChange(1, URLS, [row("c.example")])])
    assert met(replica, "a.example", "c.example") == ["a.example", "c.example"]
    writer.close()
    replica.close()


def test_a_full_bloom_filter_is_rebuilt(
    writer: ReplicaWriter, replica: Replica, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = folder.glob("*.bits")
    writer.refresh_filter()
    assert list(folder.glob("*.bits")) == [before]
    monkeypatch.setattr("mailwarden.lists.replica.file._FULL", 1 << 22)
    writer.refresh_filter()
    assert list(folder.glob("*.bits")) != [before]
    assert met(replica, "a.example", "b.example", "c.example") == ["a.example", "b.example"]


def test_the_bits_know_every_key_and_hardly_any_other(tmp_path: Path) -> None:
    field = ReplicaFilter.create(tmp_path / "bits", size_for(100_000))
    keys = [f"host{number}.example".encode() for number in range(100_000)]
    field.add(7, keys)
    assert field.possible(7, keys) == keys
    assert len(field.possible(7, [b"x" + key for key in keys])) < 2_000
    assert len(field.possible(8, keys)) < 2_000
    field.close()
