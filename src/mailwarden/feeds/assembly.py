"""Opens the feed service with its stores."""

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.database.pool import Database
from mailwarden.feeds.fetching import HttpClient
from mailwarden.feeds.model import SECRET
from mailwarden.feeds.service import FeedService
from mailwarden.feeds.store import FeedStore
from mailwarden.feeds.warning_lists import WarningLists
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.opening import open_history
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListStore
from mailwarden.policy.rehearsal import Rehearsal
from mailwarden.policy.rules import Policy

CONNECTIONS = 3
COMMAND_SECONDS = 60.0  # a comparison of a million entries takes some seconds


def open_feeds(
    database: Database, http: HttpClient, ring: KeyRing, policy: Policy, *, clickhouse: Clickhouse | None = None
) -> FeedService:
    """Return the service; `database` has CONNECTIONS of its own and COMMAND_SECONDS, so that feeds delay no scan."""
    history = open_history(database, clickhouse=clickhouse)
    lists, entries = ListStore(database, database), EntryStore(database)
    return FeedService(
        FeedStore(database),
        lists=lists,
        list_service=ListService(lists),
        warnings=WarningLists(history.senders, TenantStore(database)),
        rehearsal=Rehearsal(history, policy, entries),
        http=http,
        seal=Seal(ring, SECRET),
    )
