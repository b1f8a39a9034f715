"""An organisation's OpenID Connect provider over HTTPS: its description, its keys, and codes turned into ID tokens.

Security: reads what a provider answers. Every call has a deadline and a size, follows no redirect, and goes only to
where the provider's description says, by the scheme of its issuer.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from mailwarden.access.people import Role
from mailwarden.errors import LoginFailed, ProviderUnreachable
from mailwarden.telemetry.logs import get_logger

DEADLINE = 5.0
MAX_ANSWER = 262_144
KEPT_SECONDS = 3_600.0
ANEW_SECONDS = 30.0  # keys are asked for again at most so often, whoever sends unknown ones
LEEWAY = 60
ALGORITHMS = ("RS256", "ES256")
MAX_SUBJECT = 255

T = TypeVar("T")
_log = get_logger("access.openid")


class OpenIdSettings(Struct, frozen=True):
    """What the configuration says; `redirect` is where the provider sends people back."""

    issuer: str
    client_id: str
    client_secret: str
    roles: Mapping[str, Role]
    redirect: str
    role_claim: str = "roles"
    tenants_claim: str = ""
    scopes: str = "openid profile email"


class Description(Struct, frozen=True):
    """What we use of a provider's metadata (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(Struct, frozen=True):
    id_token: str


class Provider:
    """One provider; its description and keys are kept for an hour."""

    def __init__(
        self, settings: OpenIdSettings, http: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._http = http
        self._clock = clock
        self._description: tuple[float, Description] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def describe(self) -> Description:
        """Return where the provider's doors are."""
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
        """Return the ID token that the provider gives for a code, which it gives once."""
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
        """Return the claims of an ID token that is for us, for this login, and from this provider; or refuse."""
        try:
            try:
                claims = jwt.decode(token, await self._key_set(), algorithms=list(ALGORITHMS)).claims
            except (JoseError, ValueError):
                # The provider may have changed its keys since we looked.
                claims = jwt.decode(token, await self._key_set(anew=True), algorithms=list(ALGORITHMS)).claims
            self._check(claims, nonce)
        except (JoseError, ValueError, TypeError) as error:
            _log.info("id_token_refused", reason=type(error).__name__)
            raise refused() from None
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
            raise _unusable("it said too much")
        if response.status != 200:
            _log.info("provider_refused", status=response.status)
            raise refused()
        return content


def refused() -> LoginFailed:
    return LoginFailed("The organisation's login did not vouch for you; try again.")


def _unusable(reason: str) -> LoginFailed:
    _log.warning("provider_unusable", reason=reason)
    return LoginFailed("The organisation's login cannot be used just now.")


def _read(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError:
        raise _unusable("its answer cannot be read") from None
