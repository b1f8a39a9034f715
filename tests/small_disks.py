"""A small disk of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workshop.rig.disk import SmallDisk
from workshop.rig.process import RigError


@contextmanager
def mounted(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size and unmount it afterwards; skip the test where that is not permitted."""
    made = SmallDisk(folder, mebibytes)
    try:
        made.mount()
    except RigError as error:
        pytest.skip(str(error))
    yield made
    made.unmount()
