"""Console sessions of users with any role, as a plain HTTP client."""

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
from tests.acceptance.deployment import Deployment

PATIENCE = 60.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ConsoleSession:
    """A session of a logged-in user; `csrf` is the token of their pages."""

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


def sign_in(deployment: Deployment, role: Role | str, tenants: Sequence[str] = ()) -> ConsoleSession:
    """Create a user with that role and a session, without the pages of the login."""
    name = f"{role}-{next(_numbers)}"
    uids = frozenset(UUID(deployment.tenants[tenant]) for tenant in tenants)
    with ThreadPoolExecutor(1) as thread:  # a thread of its own has no event loop yet, whatever kind of test asks
        cookie, csrf = thread.submit(lambda: asyncio.run(_enter(deployment, name, Position(Role(role), uids)))).result()
    return ConsoleSession(deployment.product.url, str(deployment.product.ca), name, cookie, csrf)


async def _enter(deployment: Deployment, name: str, position: Position) -> tuple[str, str]:
    folder = deployment.product.abby.folder
    configuration = YAML(typ="safe").load(folder / "abby" / "abby" / "abby.yml")
    database = Database(configuration["database"]["url"], 1)
    registry = build_registry(database, read_ring(folder / "secrets" / "pepper", "apiKeyPepper"))
    try:
        scope, place = Scope.deployment(), ClientOrigin(deployment.product.url, "127.0.0.1", "tests")
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
