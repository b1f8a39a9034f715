"""Offers the organisation's own login in the console, where the configuration names a provider."""

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from mailwarden.abby.console_config import ConsoleConfig
from mailwarden.access.openid_provider import OpenIdSettings, Provider
from mailwarden.access.people import Role
from mailwarden.console.visitor_session import VisitorSessions
from mailwarden.errors import ConfigurationError

CALLBACK = "/console/login/openid/callback"
MAX_CONNECTIONS = 8


async def offer_organisation(
    stack: AsyncExitStack, visitors: VisitorSessions, config: ConsoleConfig, folder: Path
) -> None:
    """Let the visitors send people to the provider; what that needs ends with the stack."""
    wanted = config.open_id_connect
    if wanted is None:
        return
    settings = OpenIdSettings(
        issuer=wanted.issuer,
        client_id=wanted.client_id,
        client_secret=_read_secret(folder / wanted.client_secret_file),
        roles={value: Role(role) for value, role in wanted.roles.items()},
        redirect=config.public_url + CALLBACK,
        role_claim=wanted.role_claim,
        tenants_claim=wanted.tenants_claim,
        scopes=wanted.scopes,
    )
    trust = ssl.create_default_context(cafile=str(folder / wanted.ca) if wanted.ca else None)
    connector = aiohttp.TCPConnector(ssl=trust, limit=MAX_CONNECTIONS)
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, trust_env=False))
    visitors.offer_openid(settings, Provider(settings, http), wanted.title)


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"console.openIdConnect.clientSecretFile: {path} cannot be read ({reason}).") from None
    if not secret:
        raise ConfigurationError(f"console.openIdConnect.clientSecretFile: {path} is empty.")
    return secret
