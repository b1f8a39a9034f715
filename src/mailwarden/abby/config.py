"""abby's configuration, `abby/abby/abby.yml`, with the console's part."""

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from mailwarden.access.api_tokens import StaticApiToken
from mailwarden.history.settings import HistoryStoreSettings
from mailwarden.settings.reload import Reloadable
from mailwarden.settings.shared import (
    PORTS,
    Contents,
    Database,
    Listen,
    Log,
    Quarantine,
    Tls,
    TracingSettings,
    is_loopback,
    network_mistakes,
)
from mailwarden.user_reports.settings import OutlookConfig

Seconds = Annotated[int, Meta(ge=1, le=2_592_000)]
RoleName = Literal["deployment-administrator", "tenant-administrator", "analyst", "auditor"]

PATH = "abby/abby/abby.yml"
RELOADABLE = Reloadable(keys=("staticApiTokens", "listsRateLimit", "maxUploads", "trustedProxies", "hstsMaxAge"))

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class OpenIdConnect(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Login by the organisation's OpenID provider."""

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
    """Return whether the text is an https URL, with or without a path."""
    try:
        parts = urlsplit(text)
        plain = not parts.query and not parts.fragment and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and plain and (path or not parts.path)


class FeedsConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Feeds that fill block lists; `mailwarden feeds` manages them."""

    allowed_networks: Annotated[
        tuple[str, ...],
        Meta(
            max_length=100,
            description="Private networks that feeds may be fetched from; public addresses are always allowed.",
        ),
    ] = ()
    ca: Annotated[str, Meta(description="CA of feeds in private networks, PEM, besides the system's CAs.")] = ""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from network_mistakes("allowedNetworks", self.allowed_networks, allow_all=False)


class Core(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The guards that scan messages."""

    hosts: Annotated[
        tuple[str, ...],
        Meta(min_length=1, description="Base addresses of the guards: `https://{mta_host}:9785`."),
    ]
    long_request_timeout: Annotated[
        Milliseconds, Meta(description="Longest wait for one analysis, in milliseconds.")
    ] = 3_600_000

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for host in self.hosts:
            try:
                parts = urlsplit(host)
                usable = (
                    parts.scheme == "https" and bool(parts.hostname) and parts.path in ("", "/") and parts.port != 0
                )
            except ValueError:
                usable = False
            if not usable:
                yield "hosts", f"`{host}` is not a guard's address: write https://host:9785"
        if len(set(self.hosts)) != len(self.hosts):
            yield "hosts", "names a guard twice"


class ServiceProviders(Struct, frozen=True, rename="camel", forbid_unknown_fields=False):
    """A map (specification, section 1, step 3): `core` is required, other entries are ignored."""

    core: Annotated[Core, Meta(description="The guards.")]


class AbbyListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 9081


class AbbyTls(Tls, frozen=True, rename="camel", forbid_unknown_fields=True):
    certificate: Annotated[str, Meta(description="Certificate chain, PEM.")] = "tls/abby.crt"
    key: Annotated[str, Meta(description="Private key, PEM, readable only by this process.")] = "tls/abby.key"


class PublicTls(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The certificate for callers and browsers, from a CA that they trust; `tls` is then for guards only."""

    certificate: Annotated[str, Meta(description="Certificate chain, PEM: abby's own certificate first.")]
    key: Annotated[str, Meta(description="Private key, PEM, readable only by this process.")]


class EventDelivery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The delivery of events to webhooks, syslog and files."""

    allow_private_networks: Annotated[
        tuple[str, ...],
        Meta(
            max_length=100,
            description="Networks beside the public ones that endpoints of the deployment may reach; http is "
            "allowed only to them. Endpoints with tenants never reach them.",
        ),
    ] = ()
    refuse_networks: Annotated[
        tuple[str, ...],
        Meta(
            max_length=100,
            description="Networks that no delivery and no feed may reach, such as internal hosts with public addresses "
            "and the prefix of a NAT64.",
        ),
    ] = ()
    ca: Annotated[str, Meta(description="CA of receivers' certificates beside the system's CAs, PEM.")] = ""
    folder: Annotated[str, Meta(description="Folder for the files of endpoints of the kind file.")] = "events"

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from network_mistakes("allowPrivateNetworks", self.allow_private_networks, allow_all=False)
        yield from network_mistakes("refuseNetworks", self.refuse_networks, allow_all=False)


class AbbyConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    service_providers: Annotated[ServiceProviders, Meta(description="The services behind abby.")]
    static_api_tokens: Annotated[
        tuple[StaticApiToken, ...], Meta(description="Bearer tokens of the Email Scanning API.")
    ] = ()
    api_key_pepper: Annotated[str, Meta(description="File with the key for digests of API keys.")] = "secrets/pepper"
    contents: Contents = Contents()
    quarantine: Annotated[Quarantine, Meta(description="Store of held messages, for preview and export.")] = (
        Quarantine()
    )
    lists_rate_limit: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Calls of the List API per minute and API key, over all abby processes."),
    ] = 600
    max_list_streams: Annotated[
        int, Meta(ge=1, le=64, description="Concurrent list streams, each with its own database connection.")
    ] = 16
    listen: Annotated[AbbyListen, Meta(description="abby's listener.")] = AbbyListen()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(
            max_length=100,
            description="Networks of the reverse proxies before abby: abby trusts their `X-Forwarded-For`, and "
            "no other.",
        ),
    ] = ()
    tls: Annotated[AbbyTls, Meta(description="abby's certificate for the guards, which check its name.")] = AbbyTls()
    public_tls: Annotated[
        PublicTls | None,
        Meta(description="abby's certificate for callers and browsers, reloaded on SIGHUP; `tls` if unset."),
    ] = None
    hsts_max_age: Annotated[
        int,
        Meta(
            ge=0,
            le=63_072_000,
            description="Seconds for which browsers use only HTTPS for abby's name (RFC 6797). 0 disables it and "
            "makes browsers forget it, for test names.",
        ),
    ] = 31_536_000
    max_uploads: Annotated[
        int, Meta(ge=1, le=100_000, description="Concurrent uploads; beyond it abby returns 503 overloaded.")
    ] = 1_000
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Concurrent connections; beyond it abby returns 503 and closes the connection.",
        ),
    ] = 4_096
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Concurrent connections of one client address (one /64 for IPv6), except trusted proxies.",
        ),
    ] = 512
    body_timeout: Annotated[
        Milliseconds, Meta(description="Longest wait for the next bytes of a request body, in milliseconds.")
    ] = 30_000
    header_timeout: Annotated[
        Milliseconds, Meta(description="Longest wait for the complete request header, in milliseconds.")
    ] = 15_000
    shutdown_grace_period: Annotated[
        Milliseconds, Meta(description="Time to finish running requests after SIGTERM, in milliseconds.")
    ] = 30_000
    console: ConsoleConfig = ConsoleConfig()
    feeds: Annotated[FeedsConfig, Meta(description="Feeds that fill block lists.")] = FeedsConfig()
    events: EventDelivery = EventDelivery()
    outlook: OutlookConfig = OutlookConfig()
    database: Database = Database()
    history: HistoryStoreSettings = HistoryStoreSettings()
    spool: Annotated[str, Meta(description="Folder for uploads over 1 MiB in progress.")] = "spool"
    log: Log = Log()
    tracing: TracingSettings = TracingSettings()
    demo: Annotated[
        bool,
        Meta(
            description="Login by a click, for made-up mail on loopback. `mailwarden demo` sets it; abby starts with "
            "it only on the database that this command has marked."
        ),
    ] = False

    def mistakes(self) -> Iterator[tuple[str, str]]:
        names = [token.name for token in self.static_api_tokens]
        secrets = [token.token for token in self.static_api_tokens]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "staticApiTokens", f"two tokens are named `{name}`"
        if len(set(secrets)) != len(secrets):
            yield "staticApiTokens", "two users have the same token"
        if self.outlook.report_address and not self.console.public_url:
            yield "outlook", "needs console.publicUrl, from which Outlook loads the add-in"
        yield from network_mistakes("trustedProxies", self.trusted_proxies, allow_all=False)
        if self.demo:  # its login needs no password
            if not is_loopback(self.listen.host):
                yield "demo", f"needs a loopback address in listen.host, not `{self.listen.host}`"
            if self.trusted_proxies:
                yield "demo", "allows no trustedProxies: others than this host could log in"
            if self.console.open_id_connect is not None:
                yield "demo", "allows no console.openIdConnect: its users are made up"
