"""What the screens of lists work with: the List API's own service, the desk, the checker and hindsight."""

from msgspec import Struct

from mailwarden.lists.checking import Checker
from mailwarden.lists.desk import ListDesk
from mailwarden.lists.service import Lists
from mailwarden.policy.hindsight import Hindsight


class ListServices(Struct, frozen=True):
    lists: Lists
    desk: ListDesk
    checker: Checker
    hindsight: Hindsight
