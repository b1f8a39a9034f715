"""People who use the console: what a person is, and which tenants their role lets them see."""

import re
import unicodedata
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import SchemaViolation
from mailwarden.model.scope import Scope

MAX_NAME = 100
MAX_EMAIL = 254
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")


class Role(StrEnum):
    """What a person may do; `console/permissions.py` has the table."""

    DEPLOYMENT_ADMINISTRATOR = "deployment-administrator"
    TENANT_ADMINISTRATOR = "tenant-administrator"
    ANALYST = "analyst"
    AUDITOR = "auditor"


class User(Struct, frozen=True):
    """One person, without any secret of theirs."""

    uid: UUID
    name: str
    role: Role
    tenants: frozenset[UUID]
    created: datetime
    email: str = ""
    disabled: bool = False
    last_login: datetime | None = None
    has_password: bool = False
    has_totp: bool = False
    passkeys: int = 0
    issuer: str | None = None

    @property
    def scope(self) -> Scope:
        """Return what the person sees: an analyst or auditor without tenants sees the deployment."""
        if self.role is Role.DEPLOYMENT_ADMINISTRATOR:
            return Scope.deployment()
        if self.role is Role.TENANT_ADMINISTRATOR or self.tenants:
            return Scope(self.tenants)
        return Scope.deployment()


class Position(Struct, frozen=True):
    """A role, and the tenants that it is for; none is the deployment."""

    role: Role
    tenants: frozenset[UUID] = frozenset()

    def check(self) -> None:
        """Refuse a role with tenants that cannot be."""
        if self.role is Role.DEPLOYMENT_ADMINISTRATOR and self.tenants:
            raise SchemaViolation("A deployment administrator is bound to no tenant.")
        if self.role is Role.TENANT_ADMINISTRATOR and not self.tenants:
            raise SchemaViolation("A tenant administrator needs at least one tenant.")

    def is_within(self, scope: Scope) -> bool:
        """Tell whether somebody of that scope may give it: nobody gives more than they have."""
        if scope.tenants is None:
            return True
        return self.role is not Role.DEPLOYMENT_ADMINISTRATOR and bool(self.tenants) and self.tenants <= scope.tenants


def checked_name(text: str) -> str:
    """Return a login name, or say what one looks like; one alphabet, so that no two look the same."""
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise SchemaViolation(f"A name has 1 to {MAX_NAME} letters, digits or . _ @ + -, a letter or digit first.")
    return name


def checked_email(text: str) -> str:
    """Return the address in its one form; it is a label for people, and nothing is sent to it."""
    email = unicodedata.normalize("NFC", text.strip())
    if email and (len(email) > MAX_EMAIL or not email.isprintable() or "@" not in email or " " in email):
        raise SchemaViolation("This is no e-mail address.")
    return email
