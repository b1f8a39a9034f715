"""The rig's small disk: full to the last byte, and empty again; gone with the rig."""

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rig.disk import FILLER, SmallDisk
from rig.process import RigError
from tests.small_disks import mounted
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LONELY_RIG = """
import signal
from rig.disk import SmallDisk
from rig.folders import temporary_folder
disk = SmallDisk(temporary_folder() / "disk", 1)
disk.mount()
print(disk.folder, flush=True)
signal.pause()
"""


@pytest.fixture
def disk(tmp_path: Path):
    with mounted(tmp_path / "disk", 2) as made:
        yield made


def test_a_full_disk_takes_nothing_and_takes_it_again_when_it_is_over(disk: SmallDisk):
    over = threading.Event()
    filling = threading.Thread(target=disk.keep_full, args=(over,))
    filling.start()
    try:
        assert wait_until(lambda: (disk.folder / FILLER).exists() and not has_room(disk), 10.0)
    finally:
        over.set()
        filling.join()

    assert has_room(disk)


def test_a_folder_that_is_no_disk_is_never_filled(tmp_path: Path):
    with pytest.raises(RigError, match="no file system of its own"):
        SmallDisk(tmp_path, 1).keep_full(threading.Event())


def test_a_rig_that_is_killed_leaves_no_disk(disk: SmallDisk):
    with subprocess.Popen([sys.executable, "-c", LONELY_RIG], stdout=subprocess.PIPE, text=True) as rig:
        assert rig.stdout is not None
        place = rig.stdout.readline().strip()
        assert place in Path("/proc/mounts").read_text("utf-8")
        rig.kill()

    assert wait_until(lambda: place not in Path("/proc/mounts").read_text("utf-8"), 20.0)
    assert wait_until(lambda: not Path(place).parent.exists(), 20.0)


def has_room(disk: SmallDisk) -> bool:
    path = disk.folder / "message"
    try:
        path.write_bytes(b"x" * 10_000)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    finally:
        path.unlink(missing_ok=True)  # what it took is the filler's to take, and not the next try's
    return True
