"""Generated lists and calls for two tenants and the default tenant, and what each tenant must find of them."""

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DOMAINS = {"acme": ("company.example",), "club": ("club.example",), "default": ("elsewhere.example", "nowhere.example")}
TENANTS = tuple(DOMAINS)
SENDERS = ("ann@pass.example", "eve@pass.example")
HOSTS = ("www.one.example", "www.two.example")
WORDS = ("alpha", "beta")
LISTS = ("sender-block", "sender-allow", "url-block", "subject-block", "recipient-exempt")
# From the most severe on; of equal decisions the worse verdict leads.
OUTCOMES = (("phishing", "quarantine"), ("blocked", "quarantine"), ("phishing", "deliver"), ("blocked", "deliver"))


@dataclass
class TenantLists:
    """The lists of one tenant; its marker is in every comment, and nobody else may see it."""

    name: str
    marker: str = field(default_factory=lambda: f"mk{secrets.token_hex(6)}")
    entries: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in LISTS})

    def draw(self, chance: random.Random) -> dict[str, list[str]]:
        """Choose other entries at random."""
        drawn = {
            "sender-block": _some(chance, (*SENDERS, "pass.example"), 0.25),
            "sender-allow": _some(chance, (*SENDERS, "pass.example"), 0.25),
            "url-block": _some(chance, HOSTS, 0.25),
            "subject-block": _some(chance, WORDS, 0.25),
            "recipient-exempt": _some(chance, (*people_of(self.name), *DOMAINS[self.name]), 0.15),
        }
        self.entries = drawn
        return drawn

    def outcome(self, call: "MixedCall", recipients: Sequence[str]) -> tuple[str, str]:
        """Return the verdict and the decision that this tenant's lists must lead to."""
        blocked, allowed = self._senders(call.sender)
        by_url = call.host in self.entries["url-block"]
        by_subject = call.word in self.entries["subject-block"]
        verdict = "phishing" if by_url else "blocked" if blocked or by_subject else "clean"
        exempt = all(
            address in self.entries["recipient-exempt"] or address.partition("@")[2] in self.entries["recipient-exempt"]
            for address in recipients
        )
        delivered = exempt or verdict == "clean" or (allowed and not by_url and not by_subject)
        return verdict, "deliver" if delivered else "quarantine"

    def _senders(self, sender: str) -> tuple[bool, bool]:
        """Return whether the sender is blocked or allowed: the address beats the domain, and block beats allow."""
        for entry in (sender, sender.partition("@")[2]):
            if entry in self.entries["sender-block"]:
                return True, False
            if entry in self.entries["sender-allow"]:
                return False, True
        return False, False


@dataclass(frozen=True)
class MixedCall:
    sender: str
    host: str
    word: str
    recipients: tuple[str, ...]

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return the recipients of each tenant that has any."""
        found = {
            name: tuple(address for address in self.recipients if address.partition("@")[2] in domains)
            for name, domains in DOMAINS.items()
        }
        return {name: addresses for name, addresses in found.items() if addresses}

    @property
    def message(self) -> bytes:
        """Return a message that names no recipient."""
        return (
            f"From: <{self.sender}>\r\nTo: undisclosed-recipients:;\r\nSubject: Minutes {self.word}\r\n"
            f"Message-ID: <{secrets.token_hex(8)}@pass.example>\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n\r\n"
            f"The minutes are at https://{self.host}/minutes as always.\r\n"
        ).encode()


def people_of(name: str) -> list[str]:
    return [f"{name}{number}.box@{domain}" for domain in DOMAINS[name] for number in range(3)]


def draw_call(chance: random.Random) -> MixedCall:
    names = chance.sample(TENANTS, chance.randint(1, len(TENANTS)))
    recipients = [address for name in names for address in chance.sample(people_of(name), chance.randint(1, 3))]
    chance.shuffle(recipients)
    return MixedCall(chance.choice(SENDERS), chance.choice(HOSTS), chance.choice(WORDS), tuple(recipients))


def leading(outcomes: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the outcome that is answered."""
    return min(outcomes, key=lambda outcome: OUTCOMES.index(outcome) if outcome in OUTCOMES else len(OUTCOMES))


def _some(chance: random.Random, choices: Sequence[str], share: float) -> list[str]:
    return [each for each in choices if chance.random() < share]
