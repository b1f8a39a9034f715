"""Static API tokens and their permissions, as abby's configuration has them."""

import re
from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from mailwarden.access.permissions import TOKEN_PERMISSIONS

MIN_TOKEN_LENGTH = 32
_HASHED = re.compile(r"^sha256:[0-9a-f]{64}$")


class StaticApiToken(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100, description="Name of the token user.")]
    token: Annotated[
        str,
        Meta(description="The secret, 32 characters or more (64 hex digits recommended), or `sha256:` and its digest."),
    ]
    permissions: Annotated[
        tuple[str, ...],
        Meta(description="Permissions; empty means `messageQueue.submit` and `admin.status`."),
    ] = ()

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.token.startswith("sha256:"):
            if not _HASHED.match(self.token):
                yield "token", "sha256: must be followed by 64 lower-case hex digits"
        elif len(self.token) < MIN_TOKEN_LENGTH:
            yield (
                "token",
                f"is shorter than {MIN_TOKEN_LENGTH} characters; make one with `openssl rand -hex 32`",
            )
        elif not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            yield "token", "must be printable ASCII without spaces, as it travels in a header"
        for permission in self.permissions:
            if permission not in TOKEN_PERMISSIONS and not _names_a_tenant(permission):
                yield (
                    "permissions",
                    f"`{permission}` is no permission; known are {', '.join(TOKEN_PERMISSIONS)}, tenant:<uuid>",
                )


def _names_a_tenant(permission: str) -> bool:
    kind, _, uid = permission.partition(":")
    try:
        return kind == "tenant" and str(UUID(uid)) == uid.lower()
    except ValueError:
        return False
