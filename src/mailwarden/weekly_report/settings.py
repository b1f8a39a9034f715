"""The settings of the weekly report in guard."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from mailwarden.quarantine.settings import _LINK, _has_host
from mailwarden.settings.shared import PLAIN_ADDRESS


class WeeklyReportSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The email of weekly reports; only tenants that switched it on get one."""

    sender: Annotated[str, Meta(max_length=320, description="Sender address of weekly reports.")]
    link: Annotated[
        str,
        Meta(max_length=500, description="abby's address for users of the console, for the link: `https://…`."),
    ]
    hour: Annotated[int, Meta(ge=0, le=23, description="Hour on Mondays at which reports are sent, UTC.")] = 6

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not PLAIN_ADDRESS.fullmatch(self.sender):
            yield "sender", f"`{self.sender}` is not a plain address"
        if not _LINK.fullmatch(self.link) or not _has_host(self.link):
            yield "link", f"`{self.link}` is not https://host or https://host:port"
