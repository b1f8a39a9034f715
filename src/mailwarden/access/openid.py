"""Login by OpenID Connect: authorization code with PKCE, state and nonce, all bound to one visit.

Security: reads answers of a provider and of browsers. Issuer and subject identify a user, never a name or an address;
the provider gives the role at every login, and a user without a role cannot log in. Every call to the provider has a
deadline and a size limit, follows no redirect, and goes only to addresses in the provider's metadata.
"""

import asyncio
import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID

import aiohttp
import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from mailwarden.access.login import Logins, Registry
from mailwarden.access.rate_limits import PER_ADDRESS, address_subject
from mailwarden.access.sessions import ClientOrigin, Notes, Session
from mailwarden.access.users import MAX_NAME, NewUser, Position, Role, User, checked_email
from mailwarden.crypto.mac import equal
from mailwarden.errors import LoginFailed, NameTaken, ProviderUnreachable, SchemaViolation, TenantNotFound
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.logs import get_logger

DEADLINE = 5.0
MAX_ANSWER = 262_144
KEPT_SECONDS = 3_600.0
ANEW_SECONDS = 30.0  # the least time between two fetches of the keys
LEEWAY = 60
ALGORITHMS = ("RS256", "ES256")
MAX_SUBJECT = 255

T = TypeVar("T")
_log = get_logger("access.openid")

METHOD = "organisation login"
_ALL = Scope.deployment()
_RANKS = tuple(Role)  # most rights first
_STRANGE = re.compile(r"[^A-Za-z0-9._@+-]+")


class OpenIdSettings(Struct, frozen=True):
    """The settings of the provider; `redirect` is the address to which it sends users back."""

    issuer: str
    client_id: str
    client_secret: str
    roles: Mapping[str, Role]
    redirect: str
    role_claim: str = "roles"
    tenants_claim: str = ""
    scopes: str = "openid profile email"


class Description(Struct, frozen=True):
    """The used fields of a provider's metadata (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(Struct, frozen=True):
    id_token: str


class Provider:
    """One provider; its metadata and keys are cached for an hour."""

    def __init__(
        self, settings: OpenIdSettings, http: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._http = http
        self._clock = clock
        self._description: tuple[float, Description] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def describe(self) -> Description:
        """Return the provider's metadata."""
        if self._description is not None and self._clock() < self._description[0]:
            return self._description[1]
        issuer = self._settings.issuer
        address = issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = _read(await self._call("GET", address), Description)
        if found.issuer != issuer:
            raise _unusable("it calls itself by another name")
        scheme = urlsplit(issuer).scheme
        for endpoint in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if urlsplit(endpoint).scheme != scheme:
                raise _unusable("one of its addresses has another scheme")
        self._description = (self._clock() + KEPT_SECONDS, found)
        return found

    async def redeem(self, code: str, verifier: str) -> str:
        """Exchange an authorization code for an ID token; a code works once."""
        description = await self.describe()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect,
            "code_verifier": verifier,
        }
        who, secret = self._settings.client_id, self._settings.client_secret
        headers = {"Accept": "application/json"}
        if "client_secret_basic" in description.token_endpoint_auth_methods_supported:
            headers["Authorization"] = aiohttp.encode_basic_auth(quote(who, safe=""), quote(secret, safe=""))
        else:
            fields |= {"client_id": who, "client_secret": secret}
        answer = await self._call("POST", description.token_endpoint, data=fields, headers=headers)
        return _read(answer, _Tokens).id_token

    async def verify(self, token: str, nonce: str) -> Mapping[str, object]:
        """Return the claims of an ID token with valid signature, issuer, audience and nonce, or raise LoginFailed."""
        try:
            try:
                claims = jwt.decode(token, await self._key_set(), algorithms=list(ALGORITHMS)).claims
            except (JoseError, ValueError):
                # The provider may have rotated its keys.
                claims = jwt.decode(token, await self._key_set(anew=True), algorithms=list(ALGORITHMS)).claims
            self._check(claims, nonce)
        except (JoseError, ValueError, TypeError) as error:
            _log.info("id_token_refused", reason=type(error).__name__)
            raise rejected_login() from None
        return claims

    def _check(self, claims: Mapping[str, object], nonce: str) -> None:
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.client_id},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        rules.validate(dict(claims))
        audience, party = claims["aud"], claims.get("azp", self._settings.client_id)
        if party != self._settings.client_id or (
            isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
        ):
            raise ValueError("issued for another client")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT:
            raise ValueError("no subject")

    async def _key_set(self, *, anew: bool = False) -> KeySet:
        now = self._clock()
        if self._keys is not None:
            fetched, kept = self._keys
            if now - fetched < (ANEW_SECONDS if anew else KEPT_SECONDS):
                return kept
        answer = await self._call("GET", (await self.describe()).jwks_uri)
        found = KeySet.import_key_set(msgspec.json.decode(answer, type=dict))  # type: ignore[arg-type]
        self._keys = (now, found)
        return found

    async def _call(
        self,
        method: str,
        address: str,
        *,
        data: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(DEADLINE),
                self._http.request(method, address, data=data, headers=headers, allow_redirects=False) as response,
            ):
                content = await response.content.read(MAX_ANSWER + 1)
                while len(content) <= MAX_ANSWER and (more := await response.content.read(MAX_ANSWER + 1)):
                    content += more
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("provider_unreachable", reason=type(error).__name__)
            raise ProviderUnreachable("The organisation's login does not answer; try again.") from None
        if len(content) > MAX_ANSWER:
            raise _unusable("its answer is too large")
        if response.status != 200:
            _log.info("provider_refused", status=response.status)
            raise rejected_login()
        return content


def rejected_login() -> LoginFailed:
    return LoginFailed("The organisation's login did not vouch for you; try again.")


def _unusable(reason: str) -> LoginFailed:
    _log.warning("provider_unusable", reason=reason)
    return LoginFailed("The organisation's login cannot be used just now.")


def _read(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError:
        raise _unusable("its answer cannot be read") from None


class OpenId:
    """Sends users to the provider and logs them in when they return."""

    def __init__(self, settings: OpenIdSettings, provider: Provider, registry: Registry, logins: Logins) -> None:
        self._settings = settings
        self._provider = provider
        self._registry = registry
        self._logins = logins

    async def begin(self, visit: Session) -> tuple[str, str]:
        """Return the provider's address for the browser, and the cookie of a visit with state and nonce."""
        description = await self._provider.describe()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        notes = Notes(state=state, nonce=nonce, verifier=verifier, goal=visit.notes.goal)
        _, value = self._registry.sessions.visit(notes)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect,
            "scope": self._settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in description.authorization_endpoint else "?"
        return f"{description.authorization_endpoint}{mark}{urlencode(query)}", value

    async def finish(self, visit: Session, query: Mapping[str, str], origin: ClientOrigin) -> tuple[Session, str]:
        """Return the session of the authenticated user; a visit accepts one answer with its state.

        A forged state is rejected before any query.
        """
        notes = visit.notes
        if visit.stored or not notes.state or not _same(query.get("state", ""), notes.state):
            raise rejected_login()
        counted = "openid:" + address_subject(origin.address)  # separate from passwords, with its own limit
        (attempt,) = await self._registry.throttle.take((counted, PER_ADDRESS))
        if not await self._registry.sessions.spend(visit):
            raise rejected_login()
        if query.get("error") or not query.get("code"):
            raise rejected_login()
        if query.get("iss", self._settings.issuer) != self._settings.issuer:  # RFC 9207
            raise rejected_login()
        token = await self._provider.redeem(query["code"], notes.verifier)
        claims = await self._provider.verify(token, notes.nonce)
        user = await self._person(claims, origin)
        await self._registry.throttle.give_back(attempt)
        return await self._logins.complete(visit, user, METHOD, origin)

    async def _person(self, claims: Mapping[str, object], origin: ClientOrigin) -> User:
        """Return the user of the claims, created at the first login, with the current role."""
        position = position_of(claims, self._settings)
        issuer, subject = self._settings.issuer, str(claims["sub"])
        actor = Actor(f"openid:{issuer}", origin.address, origin.request_id)
        users = self._registry.users
        found = await users.find_subject(_ALL, issuer, subject)
        try:
            if found is None:
                return await self._make(claims, position, subject, actor)
            if found.disabled:
                raise LoginFailed("An administrator has shut you out.")
            if (found.role, found.tenants) != (position.role, position.tenants):
                found = await users.move(_ALL, found.uid, position, actor)
        except (TenantNotFound, SchemaViolation):
            raise no_role() from None
        return found

    async def _make(self, claims: Mapping[str, object], position: Position, subject: str, actor: Actor) -> User:
        """Create the user under a free name; an existing user with the name is another user."""
        names = names_of(claims)
        try:
            email = checked_email(str(claims.get("email") or ""))
        except SchemaViolation:
            email = ""
        for name in names:
            wanted = NewUser(name, position, email, issuer=self._settings.issuer, subject=subject)
            try:
                return await self._registry.users.create(_ALL, wanted, actor)
            except NameTaken:
                continue
        raise LoginFailed("Another user has your name; ask an administrator.")


def position_of(claims: Mapping[str, object], settings: OpenIdSettings) -> Position:
    """Return the role and tenants of the claims; raise LoginFailed without a role."""
    given = {settings.roles[value] for value in _texts(claims.get(settings.role_claim)) if value in settings.roles}
    role = next((role for role in _RANKS if role in given), None)
    if role is None:
        raise no_role()
    if role is Role.DEPLOYMENT_ADMINISTRATOR or not settings.tenants_claim:
        tenants: frozenset[UUID] = frozenset()
    else:
        try:
            tenants = frozenset(UUID(text) for text in _texts(claims.get(settings.tenants_claim)))
        except ValueError:
            raise no_role() from None
        if not tenants:  # without a tenant the role would cover the deployment
            raise no_role()
    if role is Role.TENANT_ADMINISTRATOR and not tenants:
        raise no_role()
    return Position(role, tenants)


def names_of(claims: Mapping[str, object]) -> Sequence[str]:
    """Return the candidate names, best first."""
    claimed = next((str(claims[claim]) for claim in ("preferred_username", "email", "sub") if claims.get(claim)), "")
    name = _STRANGE.sub("-", claimed).strip("-._@+")[: MAX_NAME - 3] or "user"
    return [name, *(f"{name}-{number}" for number in range(2, 10))]


def no_role() -> LoginFailed:
    return LoginFailed("Your organisation's login gives you no role here; ask an administrator.")


def _texts(claim: object) -> Sequence[str]:
    if isinstance(claim, str):
        return [claim]
    return [item for item in claim if isinstance(item, str)] if isinstance(claim, list) else []


def _same(given: str, expected: str) -> bool:
    return equal(given.encode("utf-8", "replace"), expected.encode())
