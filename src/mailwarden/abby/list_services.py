"""Puts together what the console does with lists, over the store that the List API uses."""

from mailwarden.console.list_form import ListServices
from mailwarden.database.pool import Database
from mailwarden.lists.change_log import ChangeStore
from mailwarden.lists.checking import Checker
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.service import ListDesk, Lists
from mailwarden.lists.store import ListStore
from mailwarden.lists.undo import UndoStore
from mailwarden.policy.impact import History, ImpactEstimator
from mailwarden.policy.rules import Policy


def build_list_services(store: ListStore, database: Database, history: History, policy: Policy) -> ListServices:
    entries = EntryStore(database)
    desk = ListDesk(store, entries, ChangeStore(database), UndoStore(database))
    return ListServices(Lists(store), desk, Checker(entries), ImpactEstimator(history, entries, policy))
