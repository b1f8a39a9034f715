"""Free space is measured by folder; a folder that does not exist has no sample."""

import re
import shutil

from mailwarden.telemetry.disks import DiskMetrics, space_of
from mailwarden.telemetry.metrics import Metrics


async def test_a_folder_that_exists_has_its_free_bytes_and_size(tmp_path):
    metrics = Metrics()
    disks = DiskMetrics(metrics, {"spool": tmp_path, "quarantine": tmp_path / "missing"})
    assert b"mailwarden_disk_free_bytes{" not in metrics.page()
    await disks.measure()
    page = metrics.page().decode()
    size = re.search(r'mailwarden_disk_size_bytes{folder="spool"} (\S+)', page)
    assert size is not None
    assert float(size[1]) == shutil.disk_usage(tmp_path).total
    assert 'mailwarden_disk_free_bytes{folder="spool"}' in page
    assert 'folder="quarantine"' not in page


def test_space_is_what_df_shows(tmp_path):
    space = space_of(tmp_path)
    assert space is not None
    assert 0 < space.free <= space.size
