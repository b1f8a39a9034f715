"""A small OpenID Connect provider on loopback, which can be told to cheat."""

import base64
import hashlib
import json
import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

CLIENT = "mailwarden"
SECRET = "a secret: with colon & more"


@dataclass
class SmallProvider:
    """Vouches for `claims`; `changes` are made to the next tokens, `key` and `algorithm` sign them."""

    claims: dict[str, object] = field(default_factory=lambda: {"sub": "7", "roles": ["soc"]})
    changes: dict[str, object] = field(default_factory=dict)
    algorithm: str = "RS256"
    issuer: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked_for_keys: int = 0
    description: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys: dict[str, RSAKey | ECKey | OctKey] = {
            "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}, private=True),
            "ES256": ECKey.generate_key("P-256", {"kid": "ec"}, private=True),
            # The public key as the secret of a MAC: what readers fell for who let the token choose.
            "HS256": OctKey.import_key(b"k" * 32, {"kid": "rsa"}),
        }
        self.strange = RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
        self.signs_with_strange_key = False

    async def start(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Self:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._show_keys)
        app.router.add_post("/token", self._give_token)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.issuer = f"{'https' if tls else 'http'}://{host}:{port}"
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    def authorize(self, address: str) -> dict[str, str]:
        """Act as the provider's login page: return the query with which the browser comes back."""
        asked = dict(parse_qsl(urlsplit(address).query))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return {"code": code, "state": asked["state"]}

    async def _describe(self, _: web.Request) -> web.Response:
        described = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return web.json_response({**described, **self.description})

    async def _show_keys(self, _: web.Request) -> web.Response:
        self.asked_for_keys += 1
        return web.json_response({"keys": [self.keys[name].as_dict(private=False) for name in ("RS256", "ES256")]})

    async def _give_token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        said = base64.b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        who = tuple(map(unquote, said.split(":")))
        asked = self.codes.pop(str(form.get("code")), None)  # a code is good once
        challenge = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        if (
            asked is None
            or who != (CLIENT, SECRET)
            or base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != asked["code_challenge"]
            or form.get("redirect_uri") != asked["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "unused", "token_type": "Bearer", "id_token": self._token(asked)})

    def _token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            **self.claims, **self.changes,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.algorithm == "none":
            parts = [b'{"alg":"none"}', json.dumps(claims).encode()]
            return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
        key = self.strange if self.signs_with_strange_key else self.keys[self.algorithm]
        header = {"alg": self.algorithm, "kid": key.kid}
        return str(jwt.encode(header, claims, key, algorithms=[self.algorithm]))
