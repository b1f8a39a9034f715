"""Where a request of a person comes from, and which site they think they are talking to."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from mailwarden.model.actor import Actor


class Place(Struct, frozen=True):
    """`site` is the origin that browsers see, `https://mail.example:9081`."""

    site: str
    address: str | None = None
    agent: str = ""
    request_id: str = ""

    @property
    def host(self) -> str:
        try:
            return urlsplit(self.site).hostname or ""
        except ValueError:  # whatever a caller wrote as Host
            return ""

    @property
    def takes_passkeys(self) -> bool:
        """Tell whether browsers make passkeys for this site: they need a name, not an address."""
        try:
            ip_address(self.host)
        except ValueError:
            return bool(self.host)
        return False

    def actor(self, name: str) -> Actor:
        return Actor(f"user:{name}", self.address, self.request_id)
