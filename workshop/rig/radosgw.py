"""The S3 server of Ceph with a database file instead of a cluster, in a root of Debian 13: that of Debian 12 has none.

It needs root for the change of the root folder. tests/integration/test_vault_s3.py makes it.
"""

import hashlib
import http.client
import subprocess
from pathlib import Path

from workshop.rig.folders import make_folder, remove_folder
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess

HOST = "127.0.0.1"
KEY_ID, SECRET = "id", "secret"  # of a server on loopback that ends with its test
_CONFIGURATION = """[global]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
[client.rgw]
rgw_backend_store = dbstore
rgw_config_store = dbstore
dbstore_db_dir = {folder}
dbstore_config_uri = file:{folder}/config.db
rgw_frontends = beast endpoint={address}
log_file = {folder}/rgw.log
run_dir = {folder}
"""


class Radosgw(ServerProcess):
    """One gateway; `place` is the root that has radosgw."""

    def __init__(self, place: Path, log: Path) -> None:
        self.port = free_port()
        self.address = f"http://{HOST}:{self.port}"
        self._folder = place / f"radosgw-{self.port}"
        inside = f"/{self._folder.name}"
        make_folder(self._folder)
        text = _CONFIGURATION.format(folder=inside, address=f"{HOST}:{self.port}")
        (self._folder / "ceph.conf").write_text(text, "ascii")
        options = ["-c", f"{inside}/ceph.conf", "-n", "client.rgw", "--no-mon-config"]
        self._admin = ["chroot", str(place), "radosgw-admin", *options]
        command = ["chroot", str(place), "radosgw", *options, "-f", "--rgw-data", inside]
        super().__init__("radosgw", command, log, lambda: self._status() == 200)

    def start(self) -> None:
        """Create the user of the tests, and start: a running server does not see a new user at once."""
        user = ["user", "create", "--uid=tests", "--display-name=tests", f"--access-key={KEY_ID}"]
        _run([*self._admin, *user, f"--secret-key={SECRET}"])
        super().start()

    def create_bucket(self, name: str) -> None:
        signed = ["curl", "--silent", "--fail", "--max-time", "10", "--aws-sigv4", "aws:amz:us-east-1:s3"]
        signed += ["--header", f"x-amz-content-sha256: {hashlib.sha256(b'').hexdigest()}"]
        _run([*signed, "--user", f"{KEY_ID}:{SECRET}", "--request", "PUT", f"{self.address}/{name}"])

    def stop(self) -> None:
        super().stop()
        remove_folder(self._folder)

    def _status(self) -> int:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2.0)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        finally:
            connection.close()


def _run(words: list[str]) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RigError(f"{words[0]} failed with {done.returncode}: {done.stderr[-500:]}")
