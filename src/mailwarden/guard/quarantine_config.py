"""The quarantine in guard's configuration: `quarantine` in `guard/core/guard.yml`."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from mailwarden.quarantine.held import Days
from mailwarden.settings.shared import Quarantine

Count = Annotated[int, Meta(ge=1, le=100_000)]


class GuardQuarantine(Quarantine, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is held by the scan source `smtp`; see docs/quarantine.md."""

    retention_days: Annotated[
        Count, Meta(description="Days to keep held messages, where their tenant says nothing else.")
    ] = 30
    malware_retention_days: Annotated[Count, Meta(description="The same for malware.")] = 14
    release_to: Annotated[
        str,
        Meta(
            description="`host:port` that takes released messages; `nextHop` if empty. Where a guard stands behind it, "
            "that guard lets them through by their signed pass."
        ),
    ] = ""

    @property
    def days(self) -> Days:
        return Days(self.retention_days, {"malware": self.malware_retention_days})

    @property
    def release_address(self) -> tuple[str, int] | None:
        """Return where released messages go, or None where that is the next hop."""
        if not self.release_to:
            return None
        host, _, port = self.release_to.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from Quarantine.mistakes(self)  # a reader asks with what it could read so far
        host, _, port = self.release_to.rpartition(":")
        if self.release_to and (not host or not port.isdigit() or not 0 < int(port) < 65536):
            yield "releaseTo", f"`{self.release_to}` is not host:port"
