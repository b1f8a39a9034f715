"""The catalogue: the lists that exist in every scope, in the order in which they are shown.

All that the product knows of one list is its entry here. Other modules ask for a property, never for a name.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache

from msgspec import Struct

from mailwarden.errors import ListNotFound
from mailwarden.lists.kinds import KINDS, Entry, Kind
from mailwarden.model.observables import Observable


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


class MatchOn(StrEnum):
    """The values of a message that the entries of a list are matched on."""

    SENDER = "sender"  # the addresses in the envelope and in From
    SENDER_DOMAIN = "sender domain"  # their domains, without those above
    SENDER_NAME = "sender name"  # the display name in From
    LOOKALIKE = "lookalike"  # the domains of sender and Reply-To that look like a protected one
    CLIENT_IP = "client IP"
    RELAY = "relay"  # the hosts that handed the message on, back from the peer
    RECIPIENT = "recipient"
    SUBJECT = "subject"
    URL = "URL"
    FILE = "file"  # the hashes of the parts and of the files in archives
    ATTACHMENT = "attachment"  # their extensions and media types


class ListDefinition(Struct, frozen=True):
    """One entry of the catalogue."""

    name: str
    display_name: str
    category: Category
    description: str
    kind_name: str
    effect: Effect
    max_size_tenant: int
    max_size_global: int
    match_on: tuple[MatchOn, ...]
    observables: tuple[Observable, ...] = ()  # collected for it by a worker, beside envelope and summary
    opposite: str = ""  # the blocklist of the same values: of both only the winning entry acts
    precedence: int = 9  # of several entries that block a message, the decision names the one with the lowest
    bounces: bool = False  # messages that it blocks are bounced, not quarantined
    needs_authentication: bool = False  # acts on a sender only if it is authenticated
    needs_every_value: bool = False  # acts only if each value that it is matched on has an entry
    needs_other_entries: bool = False  # whether a new entry acts may depend on the other entries
    fed: bool = False  # a feed may fill it
    finding_name: str = ""  # if it is not the name of the list
    history_note: str = ""  # the part of its effect that history does not show in the impact preview
    history_note_deleted: str = ""  # the same for deleted entries

    @property
    def tag(self) -> str:
        """Return the tag of a message on which an entry acts."""
        return f"list.{self.name}"

    @property
    def finding(self) -> str:
        """Return the name of the finding of an entry, without its analyzer."""
        return self.finding_name or self.name

    @property
    def contest(self) -> str:
        """Return the name that a list shares with its opposite; a list without one has its own."""
        return self.opposite or self.name

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
        match_on=(MatchOn.SENDER,), observables=(Observable.SENDERS,), precedence=4, fed=True,
        history_note="Of a message with several addresses in From only the first is kept.",
    ),
    ListDefinition(
        "sender-allow", "Allowed senders", Category.ALLOW,
        "Messages from these addresses and domains are delivered if the sender is authenticated.",
        "sender", Effect.DELIVER_IF_AUTHENTICATED, 100_000, 100_000,
        match_on=(MatchOn.SENDER,), observables=(Observable.SENDERS,), opposite="sender-block",
        needs_authentication=True,
    ),
    ListDefinition(
        "ip-block", "Blocked IP addresses", Category.BLOCK,
        "Messages that come from these IP addresses and networks are blocked.",
        "ip", Effect.BLOCKED, 100_000, 1_000_000,
        match_on=(MatchOn.CLIENT_IP,), precedence=3, bounces=True, fed=True,
        history_note="Messages that a trusted relay handed on are looked for by the relay's address.",
    ),
    ListDefinition(
        "ip-allow", "Allowed IP addresses", Category.ALLOW,
        "Messages that come from these IP addresses and networks get no spam or reputation verdict.",
        "ip", Effect.NO_REPUTATION, 10_000, 10_000,
        match_on=(MatchOn.CLIENT_IP,), opposite="ip-block",
        history_note="Messages that a trusted relay handed on are looked for by the relay's address.",
    ),
    ListDefinition(
        "url-block", "Blocked URLs", Category.BLOCK,
        "A link to one of these hosts or pages is evidence of phishing.",
        "url", Effect.PHISHING, 100_000, 10_000_000,
        match_on=(MatchOn.URL,), observables=(Observable.URLS,), precedence=2, fed=True,
        history_note="History keeps the hosts of a message and some fifty of its links: other pages are not counted.",
    ),
    ListDefinition(
        "url-allow", "Allowed URLs", Category.ALLOW,
        "A link to one of these hosts or pages raises no finding.",
        "url", Effect.NO_URL_FINDING, 100_000, 100_000,
        match_on=(MatchOn.URL,), observables=(Observable.URLS,), opposite="url-block",
        history_note="History keeps some fifty links of a message: findings about others stay as they were.",
        history_note_deleted="Findings that this entry suppressed were not stored: such messages stay unchanged.",
    ),
    ListDefinition(
        "file-hash-block", "Blocked files", Category.BLOCK,
        "A file with one of these hashes is malware.",
        "hash", Effect.MALWARE, 100_000, 10_000_000,
        match_on=(MatchOn.FILE,), observables=(Observable.FILES, Observable.INSIDE, Observable.DIGESTS),
        precedence=1, fed=True,
        history_note="Files inside archives are not kept in history and not counted.",
    ),
    ListDefinition(
        "file-hash-allow", "Allowed files", Category.ALLOW,
        "The exact file with one of these SHA-256 hashes is cleared.",
        "sha256", Effect.CLEARED_FILE, 100_000, 100_000,
        match_on=(MatchOn.FILE,), observables=(Observable.FILES,), opposite="file-hash-block",
        history_note="If an engine convicted the message, only the engine knows whether the file was the reason.",
    ),
    ListDefinition(
        "attachment-block", "Blocked attachments", Category.BLOCK,
        "Messages with an attachment of these extensions or media types are blocked.",
        "attachment", Effect.BLOCKED, 1_000, 1_000,
        match_on=(MatchOn.ATTACHMENT,), observables=(Observable.FILES, Observable.INSIDE), precedence=5,
        history_note="Files inside archives are not kept in history and not counted.",
    ),
    ListDefinition(
        "subject-block", "Blocked subjects", Category.BLOCK,
        "Messages whose subject contains one of these texts or matches one of these patterns are blocked.",
        "subject", Effect.BLOCKED, 1_000, 1_000,
        match_on=(MatchOn.SUBJECT,), observables=(Observable.SUBJECTS,), precedence=6,
    ),
    ListDefinition(
        "recipient-exempt", "Exempt recipients", Category.EXEMPT,
        "Messages to these addresses and domains are delivered unless they are malware.",
        "recipient", Effect.EXEMPT, 10_000, 1_000,
        match_on=(MatchOn.RECIPIENT,), needs_every_value=True, needs_other_entries=True,
    ),
    ListDefinition(
        "simulation-senders", "Phishing simulations", Category.EXEMPT,
        "Messages from these domains and networks are delivered as phishing simulations.",
        "domain-or-ip", Effect.SIMULATION, 1_000, 1_000,
        match_on=(MatchOn.SENDER_DOMAIN, MatchOn.CLIENT_IP), observables=(Observable.SENDERS,),
        needs_authentication=True,
    ),
    ListDefinition(
        "protected-people", "Protected people", Category.IMPERSONATION,
        "A sender with one of these names and another address is an impersonator.",
        "person", Effect.PROTECTED_PERSON, 10_000, 1_000,
        match_on=(MatchOn.SENDER_NAME,), finding_name="vip-impersonation", needs_other_entries=True,
        history_note="Names that are spelled with other accents are not counted.",
    ),
    ListDefinition(
        "protected-domains", "Protected domains", Category.IMPERSONATION,
        "A sender whose domain looks like one of these is an impersonator.",
        "domain", Effect.PROTECTED_DOMAIN, 10_000, 10_000,
        match_on=(MatchOn.LOOKALIKE,), finding_name="lookalike-domain", needs_other_entries=True,
        history_note_deleted="Other protected domains that a sender looks like as well are not considered.",
    ),
    ListDefinition(
        "lookalike-ignore", "Ignored lookalikes", Category.IMPERSONATION,
        "These domains look like a protected domain but are legitimate.",
        "domain", Effect.NO_LOOKALIKE, 10_000, 10_000,
        match_on=(MatchOn.LOOKALIKE,),
    ),
    ListDefinition(
        "trusted-relays", "Trusted relays", Category.TRUST,
        "A Received hop at one of these IP addresses and networks is skipped to find the client IP.",
        "ip", Effect.TRUSTED_HOP, 1_000, 1_000,
        match_on=(MatchOn.RELAY,), observables=(Observable.RELAYS,), needs_other_entries=True,
        history_note="The way of a message is followed as far as history keeps it, which is twenty hops.",
    ),
)  # fmt: skip

_BY_NAME: Mapping[str, ListDefinition] = {definition.name: definition for definition in CATALOGUE}


def find_list(name: str) -> ListDefinition:
    """Return the list of that name, or raise ListNotFound."""
    definition = _BY_NAME.get(name)
    if definition is None:
        raise ListNotFound("There is no list of this name: getLists names those that exist.")
    return definition


@cache
def lists_on(value: MatchOn) -> tuple[ListDefinition, ...]:
    """Return the lists that are matched on this value of a message."""
    return tuple(definition for definition in CATALOGUE if value in definition.match_on)


@cache
def names_on(value: MatchOn) -> tuple[str, ...]:
    """Return the names of the lists that are matched on this value of a message."""
    return tuple(definition.name for definition in lists_on(value))


@cache
def names_with(*effects: Effect) -> tuple[str, ...]:
    """Return the names of the lists with one of these effects."""
    return tuple(definition.name for definition in CATALOGUE if definition.effect in effects)


@cache
def names_against(name: str) -> tuple[str, ...]:
    """Return a list and its opposites by name, among which one entry wins for a value."""
    contest = find_list(name).contest
    return tuple(definition.name for definition in CATALOGUE if definition.contest == contest)


@cache
def block_and_allow(value: MatchOn) -> tuple[str, str]:
    """Return the names of the two opposite lists for this value of a message, those that users are offered."""
    allow = next(definition for definition in lists_on(value) if definition.opposite)
    return allow.opposite, allow.name
