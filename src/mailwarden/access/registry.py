"""All that is known about the people of a deployment, put together once for whoever logs them in or changes them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mailwarden.access.factor_store import FactorStore
from mailwarden.access.passwords import Passwords
from mailwarden.access.session_store import SessionStore
from mailwarden.access.sessions import SessionLimits, Sessions
from mailwarden.access.setup_links import LinkStore
from mailwarden.access.throttle import ThrottleStore
from mailwarden.access.user_store import UserStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.database.pool import Database

CONSOLE_SEAL = b"mailwarden console seal 1"


@dataclass(frozen=True, slots=True)
class Registry:
    """The stores and secrets that logging in, setting up and an account share."""

    users: UserStore
    factors: FactorStore
    links: LinkStore
    sessions: Sessions
    throttle: ThrottleStore
    passwords: Passwords
    pepper: KeyRing
    seal: Seal
    now: Callable[[], float] = time.time


def build_registry(
    database: Database,
    pepper: KeyRing,
    limits: SessionLimits | None = None,
    *,
    passwords: Passwords | None = None,
    now: Callable[[], float] = time.time,
) -> Registry:
    """Return the registry over one database; close its passwords at the end."""
    seal = Seal(pepper, CONSOLE_SEAL)
    return Registry(
        users=UserStore(database),
        factors=FactorStore(database),
        links=LinkStore(database, pepper),
        sessions=Sessions(SessionStore(database), seal, pepper, limits),
        throttle=ThrottleStore(database),
        passwords=passwords or Passwords(),
        pepper=pepper,
        seal=seal,
        now=now,
    )
