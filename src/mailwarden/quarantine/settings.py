"""The settings of the quarantine and its digest in guard."""

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from mailwarden.quarantine.model import RetentionDays
from mailwarden.settings.shared import PLAIN_ADDRESS, Count, Quarantine

# It stands in messages of ours as it is written here.
_LINK = re.compile(r"https://[A-Za-z0-9.\[\]:-]+/?")


class DigestSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The daily digest; only recipients of tenants that want it get one."""

    sender: Annotated[str, Meta(max_length=320, description="Sender address of digests.")]
    link: Annotated[
        str,
        Meta(max_length=500, description="abby's address for recipients, the start of every link: `https://…`."),
    ]
    hour: Annotated[int, Meta(ge=0, le=23, description="Hour at which digests are sent, UTC.")] = 7
    link_days: Annotated[int, Meta(ge=1, le=90, description="Days for which links of a digest are valid.")] = 7
    max_messages: Annotated[
        int, Meta(ge=1, le=500, description="Messages listed in one digest; further ones are counted.")
    ] = 50

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not PLAIN_ADDRESS.fullmatch(self.sender):
            yield "sender", f"`{self.sender}` is not a plain address"
        if not _LINK.fullmatch(self.link) or not _has_host(self.link):
            yield "link", f"`{self.link}` is not https://host or https://host:port"


class GuardQuarantine(Quarantine, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The quarantine of the scan source `smtp`; see docs/quarantine.md."""

    retention_days: Annotated[
        Count, Meta(description="Days to keep held messages, unless the tenant has its own value.")
    ] = 30
    malware_retention_days: Annotated[Count, Meta(description="The same for malware.")] = 14
    release_to: Annotated[
        str,
        Meta(
            description="`host:port` that receives released messages; `nextHop` if empty. A guard behind it accepts "
            "them by their release token."
        ),
    ] = ""
    digest: Annotated[
        DigestSettings | None,
        Meta(description="The daily digest of held messages for recipients; unset: no digest."),
    ] = None

    @property
    def days(self) -> RetentionDays:
        return RetentionDays(self.retention_days, {"malware": self.malware_retention_days})

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


def _has_host(link: str) -> bool:
    try:
        parts = urlsplit(link)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
