"""clamd: ClamAV's server on a unix socket, with our own signature for the antivirus test file."""

import socket
from pathlib import Path

from workshop.rig.folders import make_folder, service_user, socket_path
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program
from workshop.rig.samples import EICAR
from workshop.rig.signatures import PROBES, SignatureSet, probe_name

SIGNATURE = "Rig.Eicar.Test"
# The limits are above those of the product, and clamd reports any file that exceeds them.
SETTINGS = """\
Foreground yes
LocalSocketMode 666
FixStaleSocket yes
MaxThreads 20
MaxQueue 200
StreamMaxLength 60M
MaxFileSize 60M
MaxScanSize 400M
AlertExceedsMax yes
AlertEncrypted yes
AlertOLE2Macros yes
AlertBrokenExecutables yes
"""


class Clamd(ServerProcess):
    def __init__(
        self,
        folder: Path,
        settings: str = SETTINGS,
        signatures: str | None = None,
        signature_set: SignatureSet | None = None,
    ) -> None:
        """Take other settings, or other signatures than the one for the test file, for tests that need wrong ones.

        A benchmark adds a set of signatures that match no message.
        """
        self._signature_set = signature_set
        user = service_user("clamav")
        make_folder(folder, user)
        self.socket = socket_path(folder / "clamd.sock")
        self.address = f"unix:{self.socket}"
        database, temporary = make_folder(folder / "database"), make_folder(folder / "tmp", user)
        # Name, any type of file, at its first byte, the bytes in hex.
        known = f"{SIGNATURE}:0:0:{EICAR.hex()}\n" if signatures is None else signatures
        (database / "rig.ndb").write_text(known, "ascii")
        if signature_set is not None:
            signature_set.write(database)
        configuration = folder / "clamd.conf"
        places = f"LocalSocket {self.socket}\nDatabaseDirectory {database}\nTemporaryDirectory {temporary}\n"
        configuration.write_text(settings + places, "utf-8")
        super().__init__(
            "clamd",
            [find_program("clamd"), "-c", str(configuration)],
            folder / "clamd.log",
            self.ping,
            deadline=30.0 if signature_set is None else 180.0,
            user=user,
        )

    def start(self) -> None:
        """Start it, and check that it loaded the whole set of signatures."""
        super().start()
        for file, probe in PROBES.items() if self._signature_set is not None else ():
            answer = self.scan(probe)
            if not answer.startswith(f"stream: {probe_name(file)}"):
                self.kill()
                raise RigError(f"clamd did not load all signatures of {file}: it answers {answer!r} for their probe")

    def ping(self) -> bool:
        return self._ask(b"zPING\0", timeout=1.0) == "PONG"

    def scan(self, data: bytes) -> str:
        """Scan these bytes: `stream: OK`, or `stream: NAME FOUND`."""
        return self._ask(b"zINSTREAM\0" + len(data).to_bytes(4) + data + bytes(4), timeout=60.0)

    def _ask(self, command: bytes, timeout: float) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(self.socket))
            connection.sendall(command)
            answer = b""
            while data := connection.recv(4096):
                answer += data
        return answer.rstrip(b"\0").decode("utf-8", "replace")
