"""The settings of the journal: `journal` in guard.yml."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from mailwarden.journal.segments import SEGMENT_BYTES, Limits

_GIB = 1024**3


class JournalSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The rows of history that wait for the database; see docs/operating.md."""

    folder: Annotated[
        str,
        Meta(
            description="Folder of the journal, on a local disk and of this guard alone; `journal` beside "
            "`lists.replica` if empty."
        ),
    ] = ""
    max_bytes: Annotated[
        int,
        Meta(
            ge=4 * SEGMENT_BYTES,
            le=1024 * _GIB,
            description="Largest size of the journal. guard then writes further rows to the database directly, and "
            "drops and counts those that it does not take.",
        ),
    ] = 16 * _GIB
    min_free_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * _GIB,
            description="Bytes that stay free on the disk of the journal; with less, guard does the same.",
        ),
    ] = _GIB // 2

    persistent: Annotated[
        bool,
        Meta(
            description="Whether the folder is still there at the next start. If false, as with a pod's own disk, a "
            "stopping guard tries for all of `shutdownGracePeriod` to send its rows to a database that is down."
        ),
    ] = True

    @property
    def limits(self) -> Limits:
        return Limits(self.max_bytes, self.min_free_bytes)

    def place(self, folder: Path, replica: str) -> Path:
        """Return the folder; `folder` has the configuration, `replica` is the setting `lists.replica`."""
        return folder / self.folder if self.folder else (folder / replica).parent / "journal"
