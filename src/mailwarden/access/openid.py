"""Logging in by OpenID Connect: authorization code with PKCE, state and nonce, all of them bound to one visit.

Security: strangers talk to this. A person is who the provider says by issuer and subject, never by a name or an
address; their role is the provider's, anew at every login, and without one nobody gets in.
"""

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode
from uuid import UUID

from mailwarden.access.login import Logins
from mailwarden.access.openid_provider import OpenIdSettings, Provider, refused
from mailwarden.access.people import MAX_NAME, Position, Role, User, checked_email
from mailwarden.access.place import Place
from mailwarden.access.registry import Registry
from mailwarden.access.sessions import Notes, Session
from mailwarden.access.throttle import ADDRESS, address_subject
from mailwarden.access.user_store import NewUser
from mailwarden.crypto.mac import equal
from mailwarden.errors import LoginFailed, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope

METHOD = "organisation login"
_ALL = Scope.deployment()
_RANKS = tuple(Role)  # the one with the most rights first
_STRANGE = re.compile(r"[^A-Za-z0-9._@+-]+")


class OpenId:
    """Sends people to a provider, and takes them in when they come back."""

    def __init__(self, settings: OpenIdSettings, provider: Provider, registry: Registry, logins: Logins) -> None:
        self._settings = settings
        self._provider = provider
        self._registry = registry
        self._logins = logins

    async def begin(self, visit: Session) -> tuple[str, str]:
        """Return where to send the browser, and the cookie of a visit that remembers what must come back."""
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

    async def finish(self, visit: Session, query: Mapping[str, str], place: Place) -> tuple[Session, str]:
        """Return the session of the person that the provider names; a visit takes one answer with its state.

        A made-up state is rejected before any query.
        """
        notes = visit.notes
        if visit.stored or not notes.state or not _same(query.get("state", ""), notes.state):
            raise refused()
        counted = "openid:" + address_subject(place.address)  # apart from passwords: each has its own patience
        (attempt,) = await self._registry.throttle.take((counted, ADDRESS))
        if not await self._registry.sessions.spend(visit):
            raise refused()
        if query.get("error") or not query.get("code"):
            raise refused()
        if query.get("iss", self._settings.issuer) != self._settings.issuer:  # RFC 9207
            raise refused()
        token = await self._provider.redeem(query["code"], notes.verifier)
        claims = await self._provider.verify(token, notes.nonce)
        user = await self._person(claims, place)
        await self._registry.throttle.give_back(attempt)
        return await self._logins.complete(visit, user, METHOD, place)

    async def _person(self, claims: Mapping[str, object], place: Place) -> User:
        """Return the person of the claims: made at their first login, with the role that they have now."""
        position = position_of(claims, self._settings)
        issuer, subject = self._settings.issuer, str(claims["sub"])
        actor = Actor(f"openid:{issuer}", place.address, place.request_id)
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
        """Make the person under a name that nobody has; whoever has the name is somebody else."""
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
    """Return the role and tenants that the claims give, or refuse: whoever has no role has no business here."""
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
        if not tenants:  # without one they would see the deployment
            raise no_role()
    if role is Role.TENANT_ADMINISTRATOR and not tenants:
        raise no_role()
    return Position(role, tenants)


def names_of(claims: Mapping[str, object]) -> Sequence[str]:
    """Return the names to try, the best first."""
    said = next((str(claims[claim]) for claim in ("preferred_username", "email", "sub") if claims.get(claim)), "")
    name = _STRANGE.sub("-", said).strip("-._@+")[: MAX_NAME - 3] or "person"
    return [name, *(f"{name}-{number}" for number in range(2, 10))]


def no_role() -> LoginFailed:
    return LoginFailed("Your organisation's login gives you no role here; ask an administrator.")


def _texts(claim: object) -> Sequence[str]:
    if isinstance(claim, str):
        return [claim]
    return [item for item in claim if isinstance(item, str)] if isinstance(claim, list) else []


def _same(given: str, expected: str) -> bool:
    return equal(given.encode("utf-8", "replace"), expected.encode())
