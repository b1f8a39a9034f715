"""People of every role who are signed in to the console of a house, and a plain HTTP client for what they do there."""

import asyncio
import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import requests
from ruamel.yaml import YAML

from mailwarden.access.login import build_registry
from mailwarden.access.sessions import COOKIE, ClientOrigin
from mailwarden.access.users import NewUser, Position, Role
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from tests.acceptance.house import House

PATIENCE = 60.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ConsoleGuest:
    """Somebody signed in; `csrf` is the token that their pages carry."""

    url: str
    ca: str
    name: str
    cookie: str
    csrf: str

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        return self._send("GET", path, headers=headers)

    def post(
        self,
        path: str,
        fields: Mapping[str, Any] | None = None,
        *,
        csrf: str | None = None,
        files: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a form as a page of ours would; a token of "" is left out."""
        token = self.csrf if csrf is None else csrf
        given = {**({"csrf": token} if token else {}), **(fields or {})}
        if files is None:
            return self._send("POST", path, data=given, headers=headers)
        parts: list[tuple[str, Any]] = [(name, (None, value)) for name, value in given.items()]
        return self._send("POST", path, files=[*parts, *files.items()], headers=headers)

    def _send(self, method: str, path: str, **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            session.cookies.set(COOKIE, self.cookie)
            return session.request(
                method, self.url + path, verify=self.ca, timeout=PATIENCE, allow_redirects=False, **more
            )


def sign_in(house: House, role: Role | str, tenants: Sequence[str] = ()) -> ConsoleGuest:
    """Make a person of that role and open a session for them, without going through the login's pages."""
    name = f"{role}-{next(_numbers)}"
    uids = frozenset(UUID(house.tenants[tenant]) for tenant in tenants)
    with ThreadPoolExecutor(1) as thread:  # a thread of its own has no event loop yet, whatever kind of test asks
        cookie, csrf = thread.submit(lambda: asyncio.run(_enter(house, name, Position(Role(role), uids)))).result()
    return ConsoleGuest(house.product.url, str(house.product.ca), name, cookie, csrf)


async def _enter(house: House, name: str, position: Position) -> tuple[str, str]:
    folder = house.product.abby.folder
    configuration = YAML(typ="safe").load(folder / "abby" / "abby" / "abby.yml")
    database = Database(configuration["database"]["url"], 1)
    registry = build_registry(database, read_ring(folder / "secrets" / "pepper", "apiKeyPepper"))
    try:
        scope, place = Scope.deployment(), ClientOrigin(house.product.url, "127.0.0.1", "tests")
        user = await registry.users.create(scope, NewUser(name, position), Actor("tests"))
        visit, _ = registry.sessions.visit()
        session, cookie = await registry.sessions.log_in(visit, user, "tests", place)
        return cookie, session.csrf
    finally:
        registry.passwords.close()
        await database.close()


def text_of(response: requests.Response) -> str:
    """Return what a person reads on a page, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.text)).strip()
