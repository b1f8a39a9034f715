"""What each role may do in the console: one table, read by the pages and by the tests."""

from collections.abc import Mapping
from enum import StrEnum

from mailwarden.access.people import Role


class Right(StrEnum):
    """What a page asks for; each is given by itself, none implies another."""

    ACCOUNT = "account"  # one's own password, passkeys and sessions
    OVERVIEW = "overview"
    MESSAGES = "messages"
    QUARANTINE_READ = "quarantine.read"
    QUARANTINE_WRITE = "quarantine.write"
    QUARANTINE_EXPORT = "quarantine.export"
    ANALYZE = "analyze"
    LISTS_READ = "lists.read"
    LISTS_WRITE = "lists.write"
    LEARNING_READ = "learning.read"
    LEARNING_WRITE = "learning.write"
    LEARNING_RESET = "learning.reset"
    KEYS_READ = "keys.read"
    KEYS_WRITE = "keys.write"
    PEOPLE_READ = "people.read"
    PEOPLE_WRITE = "people.write"
    TENANTS_READ = "tenants.read"
    TENANTS_WRITE = "tenants.write"
    AUDIT = "audit"
    HEALTH = "health"


# These show or change what belongs to no tenant: besides the right they need a person of the whole deployment.
DEPLOYMENT_ONLY = frozenset({Right.TENANTS_WRITE, Right.HEALTH})

_READING = frozenset(
    {
        Right.ACCOUNT,
        Right.OVERVIEW,
        Right.MESSAGES,
        Right.QUARANTINE_READ,
        Right.LISTS_READ,
        Right.LEARNING_READ,
        Right.TENANTS_READ,
    }
)
_ANALYST = _READING | {Right.QUARANTINE_WRITE, Right.ANALYZE, Right.LISTS_WRITE, Right.LEARNING_WRITE}
_AUDITOR = _READING | {Right.KEYS_READ, Right.PEOPLE_READ, Right.AUDIT, Right.HEALTH}

RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.DEPLOYMENT_ADMINISTRATOR: frozenset(Right),
    Role.TENANT_ADMINISTRATOR: _ANALYST
    | {
        Right.QUARANTINE_EXPORT,
        Right.LEARNING_RESET,
        Right.KEYS_READ,
        Right.KEYS_WRITE,
        Right.PEOPLE_READ,
        Right.PEOPLE_WRITE,
        Right.AUDIT,
    },
    Role.ANALYST: _ANALYST,
    Role.AUDITOR: _AUDITOR,
}


def may(role: Role, right: Right, *, whole_deployment: bool) -> bool:
    """Tell whether a person of this role has the right."""
    return right in RIGHTS[role] and (whole_deployment or right not in DEPLOYMENT_ONLY)
