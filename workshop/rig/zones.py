"""The test domains as data: the records of each."""

from dataclasses import dataclass, field
from typing import Literal

SELECTOR = "rig"


@dataclass(frozen=True, slots=True)
class Zone:
    """One domain; its mail leaves from `address`, whose name is `mail.` and the domain, forwards and backwards."""

    name: str
    address: str
    spf: str | None = None
    dmarc: str | None = None
    dkim: bool = False
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def mail_host(self) -> str:
        return f"mail.{self.name}"


@dataclass(frozen=True, slots=True)
class DeadZone:
    """A domain without an answer: `deny` never answers a query, `refuse` rejects it."""

    name: str
    kind: Literal["deny", "refuse"]


# All addresses are from 192.0.2.0/24, which is reserved for documentation.
NETWORK = "2.0.192.in-addr.arpa"

ZONES = (
    Zone("pass.example", "192.0.2.10", "v=spf1 ip4:192.0.2.10/31 -all", "v=DMARC1; p=none", dkim=True),
    Zone("quarantine.example", "192.0.2.20", "v=spf1 mx -all", "v=DMARC1; p=quarantine", dkim=True),
    Zone("reject.example", "192.0.2.30", "v=spf1 a:mail.reject.example -all", "v=DMARC1; p=reject", dkim=True),
    Zone("strict.example", "192.0.2.40", "v=spf1 mx -all", "v=DMARC1; p=reject; adkim=s; aspf=s", dkim=True),
    Zone("softfail.example", "192.0.2.50", "v=spf1 mx ~all", "v=DMARC1; p=none"),
    Zone("neutral.example", "192.0.2.60", "v=spf1 mx ?all"),
    # No host may send mail for this one.
    Zone("fail.example", "192.0.2.70", "v=spf1 -all", "v=DMARC1; p=reject"),
    Zone("redirect.example", "192.0.2.11", "v=spf1 redirect=pass.example"),
    # A record that includes itself without end, and an invalid record.
    Zone("loop.example", "192.0.2.80", "v=spf1 include:loop.example -all"),
    Zone("broken.example", "192.0.2.90", "v=spf1 ip4:not-an-address -all", "v=DMARC1; p=nonsense"),
    Zone("bare.example", "192.0.2.100"),
    # The destination of mail.
    Zone("company.example", "192.0.2.200", "v=spf1 mx -all", "v=DMARC1; p=reject", dkim=True),
)

DEAD_ZONES = (DeadZone("silent.example", "deny"), DeadZone("refused.example", "refuse"))
