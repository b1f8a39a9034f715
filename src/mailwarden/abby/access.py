"""Who calls the Email Scanning API: static bearer tokens, what each may do, and for which tenants.

Security: secrets pass through here. They are compared by digest, all of them each time, in constant time; none is
ever logged or answered.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from aiohttp import web

from mailwarden.abby.config import StaticApiToken
from mailwarden.errors import Forbidden, InvalidCredentials, Unauthenticated
from mailwarden.model.scope import Scope
from mailwarden.serving.front_door import Call, Handler

SUBMIT = "messageQueue.submit"
READ = "messageQueue.read"
STATUS = "admin.status"
METRICS = "admin.metrics"
EVERYTHING = "*"
DEFAULT_PERMISSIONS = frozenset({SUBMIT, STATUS})
_TENANT = "tenant:"
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of one token."""

    name: str
    permissions: frozenset[str]
    scope: Scope

    def may(self, permission: str) -> bool:
        return permission in self.permissions or EVERYTHING in self.permissions


KnownHandler = Callable[[Call, Caller], Awaitable[web.StreamResponse]]


class Access:
    """Knows every token by its digest."""

    def __init__(self, tokens: Sequence[StaticApiToken]) -> None:
        self._callers = tuple((_digest_of(token.token), _caller_of(token)) for token in tokens)

    def authenticate(self, authorization: Sequence[str]) -> Caller:
        """Return who calls, from the request's Authorization headers."""
        presented = hashlib.sha256(bearer_token(authorization).encode("utf-8", "surrogateescape")).digest()
        found: Caller | None = None
        for digest, caller in self._callers:
            if hmac.compare_digest(digest, presented):
                found = caller  # and look at the rest all the same: the time taken tells nothing
        if found is None:
            raise InvalidCredentials("This token is not known.")
        return found

    def protect(self, permission: str, handler: KnownHandler) -> Handler:
        """Return a handler that lets in only callers who hold the permission, before it reads anything of them."""

        async def protected(call: Call) -> web.StreamResponse:
            caller = self.authenticate(call.request.headers.getall("Authorization", ()))
            if not caller.may(permission):
                raise Forbidden(f"This token may not do this; it needs the permission `{permission}`.")
            return await handler(call, caller)

        return protected


def bearer_token(authorization: Sequence[str]) -> str:
    """Return the token of the Authorization header, or raise the error that says why there is none."""
    if len(authorization) != 1:
        raise Unauthenticated("Send one header `Authorization: Bearer <token>`.")
    scheme, _, token = authorization[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() == "apikey":
        raise InvalidCredentials("API keys do not apply to this API; it takes `Authorization: Bearer <token>`.")
    if scheme.lower() != "bearer" or not token or " " in token:
        raise Unauthenticated("Send the header `Authorization: Bearer <token>`.")
    return token


def _digest_of(token: str) -> bytes:
    if token.startswith(_HASHED):
        return bytes.fromhex(token.removeprefix(_HASHED))
    return hashlib.sha256(token.encode()).digest()


def _caller_of(token: StaticApiToken) -> Caller:
    tenants = {UUID(p.removeprefix(_TENANT)) for p in token.permissions if p.startswith(_TENANT)}
    actions = frozenset(p for p in token.permissions if not p.startswith(_TENANT))
    return Caller(
        token.name,
        actions if token.permissions else DEFAULT_PERMISSIONS,
        Scope.of(*tenants) if tenants else Scope.deployment(),
    )
