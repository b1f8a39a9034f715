"""The replica's bloom filter on a full disk: a guard that writes to it must not be ended by SIGBUS."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailwarden.lists.replica.file import ReplicaFilter, ReplicaFolder, size_for
from mailwarden.lists.replica.writer import WholeCopy
from tests.small_disks import mounted
from tests.waiting import wait_until
from workshop.rig.disk import SmallDisk

pytestmark = pytest.mark.slow

ADD = """
import sys
from pathlib import Path
from mailwarden.lists.replica.file import ReplicaFilter
field = ReplicaFilter(Path(sys.argv[1]), writing=True)
print("open", flush=True)
sys.stdin.readline()
keys = [f"host{number}.example".encode() for number in range(5_000)]
field.add(7, keys)
print(field.possible(7, keys) == keys, flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", 2) as made:
        yield made


@contextmanager
def full(disk: SmallDisk) -> Iterator[None]:
    over = threading.Event()
    filling = threading.Thread(target=disk.keep_full, args=(over,))
    filling.start()
    try:
        assert wait_until(disk.is_full, 10.0)
        yield
    finally:
        over.set()
        filling.join()


@pytest.mark.parametrize("sparse", [False, True], ids=["of this version", "of an older version"])
def test_keys_are_added_on_a_full_disk(sparse: bool, disk: SmallDisk) -> None:
    path = disk.folder / "bits"
    ReplicaFilter.create(path, size_for(1)).close()
    if sparse:
        size = path.stat().st_size
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)
    command = [sys.executable, "-c", ADD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout is not None
        assert guard.stdout.readline() == "open\n"
        with full(disk):
            answer, _ = guard.communicate("\n", timeout=60)
    assert (guard.returncode, answer) == (0, "True\n")


def test_a_copy_that_finds_no_room_raises_an_error_and_leaves_no_file(disk: SmallDisk) -> None:
    with full(disk), pytest.raises(OSError, match="No space left"):
        WholeCopy(ReplicaFolder(disk.folder), [])
    assert list(disk.folder.iterdir()) == []
