"""The scan sources `rspamdApi` and `stalwartHook` in guard's configuration: doors for what is installed already."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mailwarden.guard.smtp.config import is_inside
from mailwarden.settings.shared import PORTS, Listen

MIN_SECRET = 16

Connections = Annotated[
    int, Meta(ge=1, le=100_000, description="Concurrent connections; guard asks further clients to retry.")
]
Public = Annotated[
    bool, Meta(description="Allows a `listen.host` that is neither loopback nor private; needs the secret.")
]
WithoutSecret = Annotated[
    bool,
    Meta(
        description="Allows clients without a secret: every process of this host, and with a private address every "
        "host of that network, can then submit messages and read verdicts."
    ),
]
BodyTimeout = Annotated[
    int, Meta(ge=1, le=3_600_000, description="Longest wait for the next bytes of a message, in milliseconds.")
]


class RspamdApiListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 11433


class RspamdApi(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The scan source that answers clients of Rspamd; see docs/integrations.md."""

    listen: Annotated[RspamdApiListen, Meta(description="Listener for Rspamd clients, plain HTTP.")] = RspamdApiListen()
    public: Public = False
    allow_without_secret: WithoutSecret = False
    password: Annotated[
        str, Meta(description="Value of the header `Password`; required without `allowWithoutSecret`.")
    ] = ""
    quarantine_as: Annotated[
        Literal["reject", "add header", "discard"],
        Meta(description="Action for the decision quarantine; the client stores nothing, so `reject` is the default."),
    ] = "reject"
    max_connections: Connections = 200
    body_timeout: BodyTimeout = 30_000

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from _mistakes(self, "password", self.password)


class StalwartHookListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 11480


class StalwartHook(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The scan source that answers Stalwart's MTA hooks; see docs/integrations.md."""

    listen: Annotated[StalwartHookListen, Meta(description="Listener for Stalwart, plain HTTP.")] = StalwartHookListen()
    public: Public = False
    allow_without_secret: WithoutSecret = False
    token: Annotated[str, Meta(description="Bearer token of the hook; required without `allowWithoutSecret`.")] = ""
    quarantine_as: Annotated[
        Literal["reject", "quarantine", "discard"],
        Meta(description="Action for the decision quarantine; Stalwart's own `quarantine` delivers with a mark."),
    ] = "reject"
    max_connections: Connections = 200
    body_timeout: BodyTimeout = 30_000

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from _mistakes(self, "token", self.token)


def _mistakes(source: RspamdApi | StalwartHook, key: str, secret: str) -> Iterator[tuple[str, str]]:
    listen, public = source.listen, source.public
    if not secret and not public and not source.allow_without_secret:
        yield key, "is needed; without one `allowWithoutSecret: true` lets every process that reaches the port ask"
    if not public and not is_inside(listen.host):
        problem = (
            f"`{listen.host}` is not a loopback or private address. Messages would pass in the open, and whoever "
            f"reaches this port is believed; `public: true` and a {key} allow it all the same"
        )
        yield "listen", problem
    if public and not secret:
        yield key, "is needed where `public: true` lets others than this host and private networks ask"
    if secret and (len(secret) < MIN_SECRET or any(not "!" <= character <= "~" for character in secret)):
        yield key, f"must be {MIN_SECRET} or more printable ASCII characters without blanks: it goes into a header"
