"""Random crash points: everything acknowledged is read back exactly once, whatever a crash left on disk."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mailwarden.journal.format import Head, Record, encode_head, encode_record
from mailwarden.journal.segments import POSITION, Limits, Segments
from tests.properties import examples

LIMITS = Limits(max_bytes=1 << 20, segment_bytes=600)

APPEND = st.tuples(st.just("append"), st.integers(1, 12))
SEND = st.tuples(st.just("send"), st.integers(1, 30))
# A crash while a group of so many rows is written: so many of its bytes are on disk, and then perhaps other bytes.
CRASH = st.tuples(
    st.just("crash"), st.integers(0, 5), st.floats(0, 1), st.binary(max_size=40), st.sampled_from(["kept", "torn", ""])
)
STEPS = st.lists(st.one_of(APPEND, APPEND, SEND, CRASH), min_size=1, max_size=25)


class Model:
    """A journal with a history store that keeps each row once, and crashes between the steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Segments.open(folder, LIMITS, 1)
        self.made = 0
        self.acknowledged: list[bytes] = []
        self.unknown: set[bytes] = set()  # rows of a crash: they may be kept or not
        self.stored: list[bytes] = []

    def rows(self, count: int) -> list[bytes]:
        self.made += count
        return [b'{"row":%d}' % number for number in range(self.made - count, self.made)]

    def append(self, count: int) -> None:
        rows = self.rows(count)
        self.journal.append(rows, 1)
        self.acknowledged += rows

    def send(self, count: int) -> None:
        chunk = self.journal.read(self.journal.position)
        assert chunk.missing == 0
        for record in chunk.records[:count]:
            if record.payload not in self.stored:  # the store ignores rows that it has
                self.stored.append(record.payload)
        sent = chunk.records[:count]
        if sent:
            self.journal.advance(sent[-1].number + 1)

    def crash(self, count: int, share: float, garbage: bytes, position: str) -> None:
        rows = self.rows(count)
        self.unknown |= set(rows)
        following = self.journal.next
        self.journal.close()
        data = b"".join(encode_record(Record(following + place, 1, row)) for place, row in enumerate(rows))
        found = sorted(self.folder.glob("*.journal"))
        tail = data[: int(len(data) * share)] + garbage.replace(b"\xff", b"")
        if found:
            with found[-1].open("ab") as file:
                file.write(tail)
        elif data:
            path = self.folder / f"{following:020d}.journal"
            path.write_bytes((encode_head(Head(1, following)) + tail)[: int(share * 100)])
        if position == "torn":
            (self.folder / POSITION).write_bytes(b"000000000000000000")
        self.journal = Segments.open(self.folder, LIMITS, 1)

    def check(self) -> None:
        while self.journal.waiting:
            self.send(1_000)
        assert [row for row in self.stored if row not in self.unknown] == self.acknowledged
        assert len(set(self.stored)) == len(self.stored)
        assert set(self.stored) <= set(self.acknowledged) | self.unknown


@examples(300)
@given(STEPS)
def test_everything_acknowledged_is_read_once_after_crashes(steps: list[tuple[object, ...]]) -> None:
    folder = Path(tempfile.mkdtemp())
    model = Model(folder)
    try:
        for name, *arguments in steps:
            getattr(model, str(name))(*arguments)
        model.check()
    finally:
        model.journal.close()
        shutil.rmtree(folder)
