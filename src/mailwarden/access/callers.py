"""Authentication and permissions: static bearer tokens of the Email Scanning API, and API keys of both APIs.

The Email Scanning API accepts an API key that has one of its scopes. A key for lists alone does not apply to it, and a
token does not apply to the List API.

Security: secrets pass through here. Tokens are compared by digest in constant time, always all of them; no secret is
logged or returned. Tenants are separated here: only a caller with all tenants learns whether a tenant exists.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from aiohttp import web
from msgspec import UNSET, UnsetType

from mailwarden.access.api_tokens import StaticApiToken
from mailwarden.access.keys import ApiKey, ApiKeys
from mailwarden.access.permissions import DEFAULT_PERMISSIONS, EVERYTHING, ApiPermission
from mailwarden.access.rate_limits import SharedRateLimiter
from mailwarden.access.tenants import TenantDirectory
from mailwarden.crypto.mac import equal
from mailwarden.errors import (
    Forbidden,
    InvalidCredentials,
    MailwardenError,
    RateLimited,
    TenantForbidden,
    TenantNotFound,
    Unauthenticated,
)
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call, Handler
from mailwarden.wire.scanning import ScanParameters

_TENANT = "tenant:"
_HASHED = "sha256:"
_KEY = "key:"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of one token or API key; `name` is unique, `actor_name` is for the audit log."""

    name: str
    permissions: frozenset[ApiPermission]
    scope: Scope
    actor_name: str

    def actor(self, call: Call) -> Actor:
        return Actor(self.actor_name, call.address, call.request_id)


KnownHandler = Callable[[Call, Caller], Awaitable[web.StreamResponse]]


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

    def protect(self, permission: ApiPermission, handler: KnownHandler) -> Handler:
        """Return a handler that checks the permission before it reads the request."""

        async def protected(call: Call) -> web.StreamResponse:
            return await handler(call, await self.caller(call, permission))

        return protected

    async def caller(self, call: Call, permission: ApiPermission) -> Caller:
        """Return the caller with the permission, or raise; a long call asks again, since a key may be revoked."""
        authorization = call.request.headers.getall("Authorization", ())
        if not is_api_key(authorization):
            caller = self.authenticate(authorization)
            needed = f"This token may not do this; it needs the permission `{permission.token}`."
        else:
            caller = await self.authenticate_key(authorization, call.address)
            needed = _missing_scope(permission)
        if permission not in caller.permissions:
            raise Forbidden(needed)
        return caller

    async def authenticate_key(self, authorization: Sequence[str], address: str | None) -> Caller:
        """Return the caller of an API key, or raise; a key without a scope of this API does not apply to it."""
        caller = _caller_of_key(await self._keys.authenticate(api_key(authorization), address))
        if all(permission.token is None for permission in caller.permissions):
            raise InvalidCredentials("This API key has no scope of this API, so it does not apply here.")
        return caller


class KeyAccess:
    """Authenticates API keys and applies their rate limits."""

    def __init__(self, keys: ApiKeys, rates: SharedRateLimiter) -> None:
        self._keys = keys
        self._rates = rates

    def protect(self, permission: ApiPermission, handler: KnownHandler) -> Handler:
        """Return a handler that checks the key's scope before it reads the request.

        Every response to a valid key has the RateLimit headers; a streamed response takes them from its call.
        """

        async def protected(call: Call) -> web.StreamResponse:
            text = api_key(call.request.headers.getall("Authorization", ()))
            key = await self._keys.authenticate(text, call.address)
            quota = await self._rates.count(key.key_id)
            try:
                if quota.exceeded:
                    raise RateLimited(f"This API key may call {quota.limit} times a minute.", retry_after=quota.seconds)
                caller = _caller_of_key(key)
                if permission not in caller.permissions:
                    raise Forbidden(_missing_scope(permission))
                response = await handler(replace(call, headers={**call.headers, **quota.headers}), caller)
            except MailwardenError as error:
                response = answer_for(error)
            if not response.prepared:
                response.headers.update(quota.headers)
            return response

        return protected


async def require_tenant(tenants: TenantDirectory, tenant: UUID, scope: Scope, forbidden: str) -> UUID:
    """Return the tenant if it exists in the scope; raise TenantForbidden with the sentence, or TenantNotFound."""
    if not scope.allows(tenant) or await tenants.find(tenant) is None:
        if scope.tenants is None:
            raise TenantNotFound(f"There is no tenant {tenant}.")
        raise TenantForbidden(forbidden)
    return tenant


async def call_scope(tenants: TenantDirectory, tenant: UUID | UnsetType, caller: Caller) -> Scope:
    """Return the scope of the named tenant, or that of the caller; raise if the caller may not see the tenant."""
    if tenant is UNSET:
        return caller.scope
    sentence = "This credential may not read anything of this tenant."
    return Scope.of(await require_tenant(tenants, tenant, caller.scope, sentence))


def require_groups(
    tenants: TenantDirectory, parameters: ScanParameters, scope: Scope, forbidden: str
) -> tuple[RecipientGroup, ...]:
    """Return the recipients by tenant if all these tenants are in the scope; raise like `require_tenant`."""
    try:
        groups = tenants.group(parameters.tenant, parameters.envelope.recipients)
    except TenantNotFound:
        if scope.tenants is None:
            raise
        raise TenantForbidden(forbidden) from None
    if not all(scope.allows(group.tenant) for group in groups):
        raise TenantForbidden(forbidden)
    return groups


def is_api_key(authorization: Sequence[str]) -> bool:
    """Return whether the Authorization header has the scheme of API keys."""
    return len(authorization) == 1 and authorization[0].partition(" ")[0].lower() == "apikey"


def _missing_scope(permission: ApiPermission) -> str:
    if permission.scope is None:
        return f"API keys may not do this; it needs a static token with the permission `{permission.token}`."
    return f"This API key may not do this; it needs the scope `{permission.scope}`."


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
    words = {p for p in token.permissions or DEFAULT_PERMISSIONS if not p.startswith(_TENANT)}
    given = frozenset(p for p in ApiPermission if p.token is not None and not words.isdisjoint((p.token, EVERYTHING)))
    scope = Scope.of(*tenants) if tenants else Scope.deployment()
    return Caller(token.name, given, scope, f"token:{token.name}")


def _caller_of_key(key: ApiKey) -> Caller:
    given = frozenset(p for p in ApiPermission if p.scope is not None and key.may(p.scope))
    return Caller(f"{_KEY}{key.key_id}", given, key.scope, f"{_KEY}{key.name}")
