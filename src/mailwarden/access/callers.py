"""Authentication and permissions: static bearer tokens of the Email Scanning API, and API keys of both APIs.

The Email Scanning API accepts an API key that has one of its scopes. A key for lists alone does not apply to it, and a
token does not apply to the List API.

Security: secrets pass through here. Tokens are compared by digest in constant time, always all of them; no secret is
logged or returned.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from aiohttp import web

from mailwarden.access.api_tokens import PERMISSIONS, StaticApiToken
from mailwarden.access.keys import ApiKey, ApiKeys, KeyScope
from mailwarden.access.rate_limits import Quota, SharedRateLimiter
from mailwarden.crypto.mac import equal
from mailwarden.errors import Forbidden, InvalidCredentials, MailwardenError, RateLimited, Unauthenticated
from mailwarden.model.scope import Actor, Scope
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call, Handler

SUBMIT = "messageQueue.submit"
READ = "messageQueue.read"
REPORT = "messageQueue.report"
HELD = "quarantine.read"
RELEASE = "quarantine.manage"
EVENTS = "events.read"  # only of API keys; a static token needs `*`
STATUS = "admin.status"
METRICS = "admin.metrics"
EVERYTHING = "*"
DEFAULT_PERMISSIONS = frozenset({SUBMIT, STATUS})
# The permission that each scope of an API key gives. The scopes of lists belong to the List API.
PERMISSION_OF: Mapping[KeyScope, str] = {
    KeyScope.SUBMIT: SUBMIT,
    KeyScope.MESSAGES: READ,
    KeyScope.REPORTS: REPORT,
    KeyScope.HELD: HELD,
    KeyScope.RELEASE: RELEASE,
    KeyScope.EVENTS: EVENTS,
    KeyScope.STATUS: STATUS,
}
SCOPE_OF: Mapping[str, KeyScope] = {permission: scope for scope, permission in PERMISSION_OF.items()}
_TENANT = "tenant:"
_HASHED = "sha256:"
_KEY = "key:"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of one token or API key; `name` is unique, `actor_name` is for the audit log."""

    name: str
    permissions: frozenset[str]
    scope: Scope
    actor_name: str

    def may(self, permission: str) -> bool:
        return permission in self.permissions or EVERYTHING in self.permissions

    def actor(self, call: Call) -> Actor:
        return Actor(self.actor_name, call.address, call.request_id)


@dataclass(frozen=True, slots=True)
class KeyCaller:
    """The user of one API key, in one call."""

    key: ApiKey
    actor: Actor
    quota: Quota


KnownHandler = Callable[[Call, Caller], Awaitable[web.StreamResponse]]
KeyHandler = Callable[[Call, KeyCaller], Awaitable[web.StreamResponse]]


class Access:
    """Authenticates callers of the Email Scanning API by the digests of the tokens, or by an API key."""

    def __init__(self, tokens: Sequence[StaticApiToken], keys: ApiKeys) -> None:
        self._keys = keys
        self.use(tokens)

    def use(self, tokens: Sequence[StaticApiToken]) -> None:
        """Accept these tokens from now on."""
        self._callers = tuple((_digest_of(token.token), _caller_of(token)) for token in tokens)

    def authenticate(self, authorization: Sequence[str]) -> Caller:
        """Return the caller of the Authorization headers, or raise."""
        presented = hashlib.sha256(bearer_token(authorization).encode("utf-8", "surrogateescape")).digest()
        found: Caller | None = None
        for digest, caller in self._callers:
            if equal(digest, presented):
                found = caller  # compare the others too, so that the time reveals nothing
        if found is None:
            raise InvalidCredentials("This token is not known.")
        return found

    def protect(self, permission: str, handler: KnownHandler) -> Handler:
        """Return a handler that checks the permission before it reads the request."""

        async def protected(call: Call) -> web.StreamResponse:
            return await handler(call, await self.caller(call, permission))

        return protected

    async def caller(self, call: Call, permission: str) -> Caller:
        """Return the caller with the permission, or raise; a long call asks again, since a key may be revoked."""
        authorization = call.request.headers.getall("Authorization", ())
        if not is_api_key(authorization):
            caller = self.authenticate(authorization)
            needed = f"This token may not do this; it needs the permission `{token_permission(permission)}`."
        else:
            caller = await self.authenticate_key(authorization, call.address)
            needed = _missing_scope(permission)
        if not caller.may(permission):
            raise Forbidden(needed)
        return caller

    async def authenticate_key(self, authorization: Sequence[str], address: str | None) -> Caller:
        """Return the caller of an API key, or raise; a key without a scope of this API does not apply to it."""
        key = await self._keys.authenticate(api_key(authorization), address)
        permissions = frozenset(PERMISSION_OF[scope] for scope in PERMISSION_OF if key.may(scope))
        if not permissions:
            raise InvalidCredentials("This API key has no scope of this API, so it does not apply here.")
        return Caller(f"{_KEY}{key.key_id}", permissions, key.scope, f"{_KEY}{key.name}")


class KeyAccess:
    """Authenticates API keys and applies their rate limits."""

    def __init__(self, keys: ApiKeys, rates: SharedRateLimiter) -> None:
        self._keys = keys
        self._rates = rates

    def protect(self, scope: KeyScope, handler: KeyHandler) -> Handler:
        """Return a handler that checks the key's scope before it reads the request.

        Every response to a valid key has the RateLimit headers; a streamed response adds them itself.
        """

        async def protected(call: Call) -> web.StreamResponse:
            text = api_key(call.request.headers.getall("Authorization", ()))
            key = await self._keys.authenticate(text, call.address)
            quota = await self._rates.count(key.key_id)
            try:
                if quota.exceeded:
                    raise RateLimited(f"This API key may call {quota.limit} times a minute.", retry_after=quota.seconds)
                if not key.may(scope):
                    raise Forbidden(f"This API key may not do this; it needs the scope `{scope}`.")
                actor = Actor(f"{_KEY}{key.name}", call.address, call.request_id)
                response = await handler(call, KeyCaller(key, actor, quota))
            except MailwardenError as error:
                response = answer_for(error)
            if not response.prepared:
                response.headers.update(quota.headers)
            return response

        return protected


def token_permission(permission: str) -> str:
    """Return the permission that a static token needs; those that abby.yml does not know come with `*` alone."""
    return permission if permission in PERMISSIONS else EVERYTHING


def is_api_key(authorization: Sequence[str]) -> bool:
    """Return whether the Authorization header has the scheme of API keys."""
    return len(authorization) == 1 and authorization[0].partition(" ")[0].lower() == "apikey"


def _missing_scope(permission: str) -> str:
    if permission not in SCOPE_OF:
        return f"API keys may not do this; it needs a static token with the permission `{permission}`."
    return f"This API key may not do this; it needs the scope `{SCOPE_OF[permission]}`."


def api_key(authorization: Sequence[str]) -> str:
    """Return the API key of the Authorization header, or raise."""
    if len(authorization) != 1:
        raise Unauthenticated("Send one header `Authorization: apikey <key>`.", scheme="apikey")
    scheme, _, key = authorization[0].partition(" ")
    key = key.strip(" ")
    if scheme.lower() == "bearer":
        sentence = "Tokens do not apply to this API; it takes `Authorization: apikey <key>`."
        raise InvalidCredentials(sentence, scheme="apikey")
    if scheme.lower() != "apikey" or not key or " " in key:
        raise Unauthenticated("Send the header `Authorization: apikey <key>`.", scheme="apikey")
    return key


def bearer_token(authorization: Sequence[str]) -> str:
    """Return the bearer token of the Authorization header, or raise."""
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
        f"token:{token.name}",
    )
