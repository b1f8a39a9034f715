"""The catalogue: the sixteen lists that exist in every scope, in the order in which they are shown."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from mailwarden.errors import ListNotFound
from mailwarden.lists.kinds import KINDS, Entry, Kind


class Category(StrEnum):
    """The heading under which people find a list."""

    BLOCK = "Block"
    ALLOW = "Allow"
    EXEMPT = "Exempt"
    IMPERSONATION = "Impersonation"
    TRUST = "Trust"


class Effect(StrEnum):
    """The effect of a match."""

    BLOCKED = "verdict blocked"
    DELIVER_IF_AUTHENTICATED = "deliver if authenticated"
    NO_REPUTATION = "no spam or reputation verdict"
    PHISHING = "evidence of phishing"
    NO_URL_FINDING = "that URL raises no finding"
    MALWARE = "verdict malware"
    CLEARED_FILE = "clears that exact file"
    EXEMPT = "deliver, the malware floor stays"
    SIMULATION = "deliver as a simulation"
    PROTECTED_PERSON = "the name is protected"
    PROTECTED_DOMAIN = "the domain is protected"
    NO_LOOKALIKE = "no lookalike finding"
    TRUSTED_HOP = "the Received hop is skipped"


class ListDefinition(Struct, frozen=True):
    """One row of the catalogue."""

    name: str
    display_name: str
    category: Category
    description: str
    kind_name: str
    effect: Effect
    max_size_tenant: int
    max_size_global: int

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]

    @property
    def lets_through(self) -> bool:
        """Whether an entry lets mail through, so that a free-mail domain is too broad."""
        return self.category is Category.ALLOW or self.effect is Effect.SIMULATION

    def max_size(self, *, in_tenant: bool) -> int:
        return self.max_size_tenant if in_tenant else self.max_size_global

    def normalise(self, text: str) -> Entry:
        """Return the entry as it is stored, or raise InvalidEntry or EntryTooBroad."""
        return self.kind.normalise(text, lets_through=self.lets_through)

    def normalise_plain(self, texts: Sequence[str]) -> list[Entry | None]:
        """Return the stored form of every text that is in plain form; None: call `normalise`."""
        return self.kind.normalise_plain(texts, lets_through=self.lets_through)

    def spell(self, text: str) -> Entry:
        """Return the entry as it would be stored, however broad: for finding and deleting."""
        return self.kind.spell(text)


CATALOGUE: tuple[ListDefinition, ...] = (
    ListDefinition(
        "sender-block", "Blocked senders", Category.BLOCK,
        "Messages from these addresses and domains are blocked.",
        "sender", Effect.BLOCKED, 100_000, 1_000_000,
    ),
    ListDefinition(
        "sender-allow", "Allowed senders", Category.ALLOW,
        "Messages from these addresses and domains are delivered if the sender is authenticated.",
        "sender", Effect.DELIVER_IF_AUTHENTICATED, 100_000, 100_000,
    ),
    ListDefinition(
        "ip-block", "Blocked IP addresses", Category.BLOCK,
        "Messages that come from these IP addresses and networks are blocked.",
        "ip", Effect.BLOCKED, 100_000, 1_000_000,
    ),
    ListDefinition(
        "ip-allow", "Allowed IP addresses", Category.ALLOW,
        "Messages that come from these IP addresses and networks get no spam or reputation verdict.",
        "ip", Effect.NO_REPUTATION, 10_000, 10_000,
    ),
    ListDefinition(
        "url-block", "Blocked URLs", Category.BLOCK,
        "A link to one of these hosts or pages is evidence of phishing.",
        "url", Effect.PHISHING, 100_000, 10_000_000,
    ),
    ListDefinition(
        "url-allow", "Allowed URLs", Category.ALLOW,
        "A link to one of these hosts or pages raises no finding.",
        "url", Effect.NO_URL_FINDING, 100_000, 100_000,
    ),
    ListDefinition(
        "file-hash-block", "Blocked files", Category.BLOCK,
        "A file with one of these hashes is malware.",
        "hash", Effect.MALWARE, 100_000, 10_000_000,
    ),
    ListDefinition(
        "file-hash-allow", "Allowed files", Category.ALLOW,
        "The exact file with one of these SHA-256 hashes is cleared.",
        "sha256", Effect.CLEARED_FILE, 100_000, 100_000,
    ),
    ListDefinition(
        "attachment-block", "Blocked attachments", Category.BLOCK,
        "Messages with an attachment of these extensions or media types are blocked.",
        "attachment", Effect.BLOCKED, 1_000, 1_000,
    ),
    ListDefinition(
        "subject-block", "Blocked subjects", Category.BLOCK,
        "Messages whose subject contains one of these texts or matches one of these patterns are blocked.",
        "subject", Effect.BLOCKED, 1_000, 1_000,
    ),
    ListDefinition(
        "recipient-exempt", "Exempt recipients", Category.EXEMPT,
        "Messages to these addresses and domains are delivered unless they are malware.",
        "recipient", Effect.EXEMPT, 10_000, 1_000,
    ),
    ListDefinition(
        "simulation-senders", "Phishing simulations", Category.EXEMPT,
        "Messages from these domains and networks are delivered as phishing simulations.",
        "domain-or-ip", Effect.SIMULATION, 1_000, 1_000,
    ),
    ListDefinition(
        "protected-people", "Protected people", Category.IMPERSONATION,
        "A sender with one of these names and another address is an impersonator.",
        "person", Effect.PROTECTED_PERSON, 10_000, 1_000,
    ),
    ListDefinition(
        "protected-domains", "Protected domains", Category.IMPERSONATION,
        "A sender whose domain looks like one of these is an impersonator.",
        "domain", Effect.PROTECTED_DOMAIN, 10_000, 10_000,
    ),
    ListDefinition(
        "lookalike-ignore", "Ignored lookalikes", Category.IMPERSONATION,
        "These domains look like a protected domain but are legitimate.",
        "domain", Effect.NO_LOOKALIKE, 10_000, 10_000,
    ),
    ListDefinition(
        "trusted-relays", "Trusted relays", Category.TRUST,
        "A Received hop at one of these IP addresses and networks is skipped to find the client IP.",
        "ip", Effect.TRUSTED_HOP, 1_000, 1_000,
    ),
)  # fmt: skip

_BY_NAME: Mapping[str, ListDefinition] = {definition.name: definition for definition in CATALOGUE}


def find_list(name: str) -> ListDefinition:
    """Return the list of that name, or raise ListNotFound."""
    definition = _BY_NAME.get(name)
    if definition is None:
        raise ListNotFound("There is no list of this name: getLists names those that exist.")
    return definition
