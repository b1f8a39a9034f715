"""The console's part of abby's configuration: `console` in `abby/abby/abby.yml`."""

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

Seconds = Annotated[int, Meta(ge=1, le=2_592_000)]
RoleName = Literal["deployment-administrator", "tenant-administrator", "analyst", "auditor"]


class OpenIdConnect(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Logging in by the organisation's own provider."""

    issuer: Annotated[str, Meta(description="The provider's issuer, `https://login.example/realm`.")]
    client_id: Annotated[str, Meta(min_length=1, max_length=255, description="Mailwarden's client id at the provider.")]
    client_secret_file: Annotated[str, Meta(description="File with Mailwarden's secret at the provider.")]
    roles: Annotated[
        dict[str, RoleName],
        Meta(
            min_length=1,
            description="Values of the role claim with their roles. Of several, the most powerful role applies.",
        ),
    ]
    role_claim: Annotated[str, Meta(min_length=1, description="Claim of the ID token with the role.")] = "roles"
    tenants_claim: Annotated[
        str, Meta(description="Claim with the UUIDs of the user's tenants; unset: the deployment.")
    ] = ""
    title: Annotated[str, Meta(min_length=1, max_length=60, description="Text of the login button.")] = (
        "Log in with your organisation"
    )
    scopes: Annotated[str, Meta(description="Scopes to request.")] = "openid profile email"
    ca: Annotated[str, Meta(description="CA of the provider's certificate, PEM; unset: the system's CAs.")] = ""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not is_site(self.issuer, path=True):
            yield "issuer", "must be an https:// address without a query"
        if "openid" not in self.scopes.split():
            yield "scopes", "must contain openid"


class ConsoleConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The web console."""

    public_url: Annotated[
        str,
        Meta(description="abby's address for browsers, `https://mail.example:9081`; unset: any name."),
    ] = ""
    session_idle: Annotated[Seconds, Meta(description="Seconds without a request after which a session ends.")] = 1_800
    session_absolute: Annotated[Seconds, Meta(description="Seconds after the login after which a session ends.")] = (
        43_200
    )
    preview_sandbox: Annotated[
        Literal["required", "disabled"],
        Meta(
            description="`required`: no preview without a sandbox. `disabled`: preview "
            "processes run with all rights of abby."
        ),
    ] = "required"
    open_id_connect: Annotated[OpenIdConnect | None, Meta(description="Login through an OpenID Connect provider.")] = (
        None
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.public_url and not is_site(self.public_url):
            yield "publicUrl", "must be https://host or https://host:port and nothing more"
        if self.session_idle > self.session_absolute:
            yield "sessionIdle", "is longer than sessionAbsolute"
        if self.open_id_connect is not None and not self.public_url:
            yield "openIdConnect", "needs publicUrl, to which the provider sends people back"


def is_site(text: str, *, path: bool = False) -> bool:
    """Tell whether the text is an https address, with a path or without."""
    try:
        parts = urlsplit(text)
        plain = not parts.query and not parts.fragment and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and plain and (path or not parts.path)
