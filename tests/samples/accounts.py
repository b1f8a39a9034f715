"""User accounts for tests: a registry with fast password hashes, and users created through setup links."""

import time

import pyotp

from mailwarden.access.accounts import UserAdministration
from mailwarden.access.factors import STEP_SECONDS, Passwords
from mailwarden.access.login import Logins, Registry, Setups, build_registry
from mailwarden.access.sessions import ClientOrigin, Session, SessionLimits
from mailwarden.access.users import Position, User
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope

ALL = Scope.deployment()
ADA = Actor("cli:ada")
PEPPER = KeyRing.of(b"p" * 32)
PLACE = ClientOrigin("https://mail.example:9081", "192.0.2.7", "Testfox 1.0", "request-1")
PASSWORD = "correct horse battery"


class Clock:
    """The clock of one-time codes; `pass_steps` advances it."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now

    def pass_steps(self, steps: int = 1) -> None:
        self.now += steps * STEP_SECONDS


class Accounts:
    """Logins, setup links and administration over one database."""

    def __init__(self, database: Database, limits: SessionLimits | None = None, pepper: KeyRing = PEPPER) -> None:
        self.database = database
        self.clock = Clock()
        quick = Passwords(rounds=1, memory=64)
        self.registry: Registry = build_registry(database, pepper, limits, passwords=quick, now=self.clock)
        self.logins = Logins(self.registry)
        self.setups = Setups(self.registry, self.logins)
        self.administration = UserAdministration(self.registry)
        self.secrets: dict[str, str] = {}

    async def accept(self, token: str, name: str, password: str = PASSWORD) -> tuple[Session, str]:
        """Follow a setup link to the end, with an authenticator."""
        visit, _ = await self.setups.open(token, PLACE)
        visit = await self.setups.choose(visit, name, password)
        self.secrets[visit.notes.name] = visit.notes.totp
        return await self.setups.prove_totp(visit, self.code(visit.notes.name), PLACE)

    async def create_user(self, name: str, position: Position) -> User:
        session, _ = await self.accept(await self.registry.links.invite(ALL, position, "", ADA), name)
        assert session.user is not None
        return session.user

    def code(self, name: str) -> str:
        return pyotp.TOTP(self.secrets[name]).at(int(self.clock.now))

    async def log_in(self, name: str, password: str = PASSWORD) -> tuple[Session, str]:
        self.clock.pass_steps()
        visit, _ = self.registry.sessions.visit()
        visit, _ = await self.logins.check_password(visit, name, password, PLACE)
        return await self.logins.check_code(visit, self.code(name), PLACE)
