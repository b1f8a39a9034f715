"""Warning lists: values that no feed blocks.

Popular domains, free-mail and shared hosts are public knowledge. Own domains and correspondents are those of the
feed's tenant alone; a feed of the global lists has those of all tenants, and only users of the whole deployment see it.

Security: entries come from third parties. A lookup answers "known or not" for one entry, and never lists what is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_network
from uuid import UUID

from mailwarden.access.tenant_store import TenantStore
from mailwarden.analysis.links.hosts import HostKind, is_known_name, kind_of
from mailwarden.analysis.links.popular import Band, DomainKind, band_of, domain_kind
from mailwarden.event_delivery.addresses import overlaps_reserved
from mailwarden.feeds.model import WarningList
from mailwarden.lists.catalogue import MatchOn, names_on
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.lists.store import ListScope
from mailwarden.message.urls import host_of, registrable_domain
from mailwarden.model.scope import Scope
from mailwarden.senders.domain_memory import domain_digest
from mailwarden.senders.lookup import contact_digest
from mailwarden.senders.model import SenderStore
from mailwarden.senders.relations import domain_relation

MAX_LOOKUPS = 2_000  # contacts of one statement
_OF_HOSTS = (*names_on(MatchOn.SENDER), *names_on(MatchOn.URL))
_SHARED = frozenset(
    {HostKind.SHORTENER, HostKind.HOSTING, HostKind.STORAGE, HostKind.DYNAMIC, HostKind.FORM, HostKind.SENDING}
)


class WarningLists:
    def __init__(self, senders: SenderStore, tenants: TenantStore) -> None:
        self._senders = senders
        self._tenants = tenants

    async def open(self, scope: ListScope) -> "ScopedWarningLists":
        """Return the warning lists of one scope."""
        seen_by = Scope.deployment() if scope.tenant is None else Scope.of(scope.tenant)
        own = frozenset(domain for tenant in await self._tenants.list(seen_by) for domain in tenant.domains)
        return ScopedWarningLists(self._senders, seen_by, scope.tenant, own)


class ScopedWarningLists:
    def __init__(self, senders: SenderStore, scope: Scope, tenant: UUID | None, own: AbstractSet[str]) -> None:
        self._senders = senders
        self._scope = scope
        self._tenant = tenant
        self._own = own
        self._salt = b""

    async def check(self, list_name: str, entries: Sequence[str]) -> Mapping[str, WarningList]:
        """Return those of the entries, in stored form, that hit a warning list."""
        found = {entry: hit for entry in entries if (hit := self._public_hit(list_name, entry)) is not None}
        rest = [entry for entry in entries if entry not in found]
        if list_name in _OF_HOSTS:
            known = await self._correspondents([entry for entry in rest if not _is_page(list_name, entry)])
            found |= dict.fromkeys(known, WarningList.CORRESPONDENT)
        return found

    def _public_hit(self, list_name: str, entry: str) -> WarningList | None:
        if list_name in names_on(MatchOn.CLIENT_IP):
            return WarningList.PRIVATE_ADDRESS if overlaps_reserved(ip_network(entry)) else None
        if list_name not in _OF_HOSTS:
            return None
        host = _host(entry)
        if self._is_own(host):
            return WarningList.OWN
        if "@" in entry or _is_page(list_name, entry):
            return None  # one mailbox or one page: the domain stays open
        return _domain_hit(host)

    def _is_own(self, host: str) -> bool:
        """Return whether the host is an own domain, below one, or above one."""
        return any(
            host == own or host.endswith(f".{own}") or own.endswith(f".{host}") for own in (self._own if host else ())
        )

    async def _correspondents(self, entries: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(entries), MAX_LOOKUPS):
            some = entries[start : start + MAX_LOOKUPS]
            found += await (self._known_here(some) if self._tenant is None else self._known_to(self._tenant, some))
        return found

    async def _known_to(self, tenant: UUID, entries: Sequence[str]) -> Iterable[str]:
        """Return the entries that sent good mail to the tenant: an address, or a registered domain."""
        salt = await self._read_salt()
        digests = {
            entry: contact_digest(salt, tenant, entry, "")
            if "@" in entry
            else contact_digest(salt, tenant, "", domain_relation(registrable_domain(_host(entry)) or _host(entry)))
            for entry in entries
        }
        stats = await self._senders.stats(self._scope, [(tenant, digest) for digest in set(digests.values())])
        return [entry for entry, digest in digests.items() if digest in stats and stats[digest].messages]

    async def _known_here(self, entries: Sequence[str]) -> Iterable[str]:
        """Return the entries whose domain sent good mail to any tenant; mailboxes are left to the rehearsal."""
        salt = await self._read_salt()
        domains = {entry: registrable_domain(_host(entry)) for entry in entries if "@" not in entry}
        digests = {entry: domain_digest(salt, domain) for entry, domain in domains.items() if domain}
        answer = await self._senders.lookup(self._scope, [], [], sorted(set(digests.values())))
        return [entry for entry, digest in digests.items() if digest in answer.domains and answer.domains[digest].good]

    async def _read_salt(self) -> bytes:
        self._salt = self._salt or await self._senders.salt(Scope.deployment())
        return self._salt


def _domain_hit(host: str) -> WarningList | None:
    """Return the warning list of a domain that is blocked whole."""
    if host in free_mail_domains():
        return WarningList.FREE_MAIL
    domain = registrable_domain(host) or host
    # One customer of a host that many share may be blocked; the shared name itself may not.
    named = host.removeprefix("www.")
    if domain_kind(named) is DomainKind.DYNAMIC or (kind_of(named) in _SHARED and is_known_name(named)):
        return WarningList.SHARED_HOST
    rented = kind_of(host) in _SHARED or domain_kind(domain) is DomainKind.DYNAMIC
    if band_of(domain) in (Band.TOP, Band.POPULAR) and not rented:
        return WarningList.POPULAR
    return None


def _is_page(list_name: str, entry: str) -> bool:
    return list_name in names_on(MatchOn.URL) and "/" in entry


def _host(entry: str) -> str:
    """Return the host or the domain of an entry in stored form."""
    if "@" in entry and "/" not in entry:
        return entry.rpartition("@")[2]
    return host_of(f"http://{entry.removeprefix('*.')}")
