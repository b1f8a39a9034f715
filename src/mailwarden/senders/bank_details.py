"""Bank details of correspondents, and accounts that differ from them.

Guard remembers the bank accounts in the good mail of each correspondent under keyed digests. An account counts after
two weeks: a message that was judged good by mistake does not make its account known at once.

Security: works on account numbers that senders choose; the accounts of one message are bounded by its evidence.
"""

import zlib
from collections.abc import Iterator, Mapping

from mailwarden.model.evidence import Finding
from mailwarden.model.place import area
from mailwarden.senders.model import ContactStats
from mailwarden.senders.relations import FACT, KNOWN_AGE, MAX_OWN, Relation

ACCOUNT = "fraud.bank-account"
GROUPS = 8  # that distinguish the accounts of one correspondent
MANY = 3  # groups with accounts: a service that sends the invoices of others
_NOTHING = ContactStats()


def relations_to_store(relation: Relation) -> Iterator[str]:
    """Yield what the accounts of a good message prove."""
    yield from accounts_of(relation)
    yield from (_group(_correspondent(relation), _group_of(account)) for account in relation.accounts)


def accounts_of(relation: Relation) -> Iterator[str]:
    """Yield the accounts of a message, alone and with its sender."""
    for account in relation.accounts:
        yield _anyones(account)
        yield _account(_correspondent(relation), account)


def relations_to_look_up(relation: Relation) -> Iterator[str]:
    yield from accounts_of(relation)
    if relation.accounts:
        yield from (_group(_correspondent(relation), number) for number in range(GROUPS))
    for account in relation.accounts:
        yield from (_account(own, account) for own in relation.own[:MAX_OWN])


def findings_of(relation: Relation, seen: Mapping[str, ContactStats], *, imitates: bool) -> Iterator[Finding]:
    """Yield the first account that a correspondent never named before, or that an imitator brings along."""
    if relation.colleague:
        return
    correspondent = _correspondent(relation)
    groups = sum(_is_settled(seen, _group(correspondent, number)) for number in range(GROUPS))
    for account in relation.accounts:
        # A correspondent that answers an invoice of the tenant quotes the tenant's own account.
        if any(_account(own, account) in seen for own in relation.own[:MAX_OWN]):
            continue
        if 0 < groups < MANY and not _is_settled(seen, _account(correspondent, account)):
            yield _finding("new-bank-account", correspondent, account)
            return
        if imitates and not _is_settled(seen, _anyones(account)):
            yield _finding("impersonation-bank-account", correspondent, account)
            return


def _correspondent(relation: Relation) -> str:
    """Return whose accounts these are: the domain's, or the address's at a free mailbox."""
    return relation.domain or relation.address


def _is_settled(seen: Mapping[str, ContactStats], text: str) -> bool:
    return seen.get(text, _NOTHING).age >= KNOWN_AGE


def _anyones(account: str) -> str:
    return f"account\0{account}"


def _account(correspondent: str, account: str) -> str:
    return f"account\0{account}\0{correspondent}"


def _group(correspondent: str, number: int) -> str:
    return f"accounts\0{correspondent}\0{number}"


def _group_of(account: str) -> int:
    return zlib.crc32(account.encode("utf-8", "replace")) % GROUPS


def _finding(what: str, correspondent: str, account: str) -> Finding:
    facts = {"correspondent": correspondent[:FACT], "account": account[:FACT]}
    return Finding(f"relationship.{what}", area("From"), {**facts})
