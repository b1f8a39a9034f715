"""The permissions of each role in the console."""

from collections.abc import Mapping
from enum import StrEnum

from mailwarden.access.users import Role


class Permission(StrEnum):
    """The permission that a page requires; no permission implies another."""

    ACCOUNT = "account"  # the user's own password, passkeys and sessions
    OVERVIEW = "overview"
    MESSAGES = "messages"
    QUARANTINE_READ = "quarantine.read"
    QUARANTINE_WRITE = "quarantine.write"
    QUARANTINE_EXPORT = "quarantine.export"
    ANALYZE = "analyze"
    LISTS_READ = "lists.read"
    LISTS_WRITE = "lists.write"
    TRAINING_READ = "training.read"
    TRAINING_WRITE = "training.write"
    TRAINING_RESET = "training.reset"
    KEYS_READ = "keys.read"
    KEYS_WRITE = "keys.write"
    USERS_READ = "users.read"
    USERS_WRITE = "users.write"
    TENANTS_READ = "tenants.read"
    TENANTS_WRITE = "tenants.write"
    WEIGHTS_WRITE = "weights.write"
    REPORTS_READ = "reports.read"
    REPORTS_WRITE = "reports.write"
    RECEIVERS_READ = "receivers.read"
    RECEIVERS_WRITE = "receivers.write"
    AUDIT = "audit"
    HEALTH = "health"


# Pages about the whole deployment: the user must have this permission and be bound to no tenant.
DEPLOYMENT_ONLY = frozenset({Permission.TENANTS_WRITE, Permission.HEALTH})

_READING = frozenset(
    {
        Permission.ACCOUNT,
        Permission.OVERVIEW,
        Permission.MESSAGES,
        Permission.QUARANTINE_READ,
        Permission.LISTS_READ,
        Permission.TRAINING_READ,
        Permission.TENANTS_READ,
        Permission.REPORTS_READ,
    }
)
_ANALYST = _READING | {
    Permission.QUARANTINE_WRITE,
    Permission.ANALYZE,
    Permission.LISTS_WRITE,
    Permission.TRAINING_WRITE,
}
_AUDITOR = _READING | {
    Permission.KEYS_READ,
    Permission.USERS_READ,
    Permission.RECEIVERS_READ,
    Permission.AUDIT,
    Permission.HEALTH,
}

PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.DEPLOYMENT_ADMINISTRATOR: frozenset(Permission),
    Role.TENANT_ADMINISTRATOR: _ANALYST
    | {
        Permission.QUARANTINE_EXPORT,
        Permission.TRAINING_RESET,
        Permission.KEYS_READ,
        Permission.KEYS_WRITE,
        Permission.USERS_READ,
        Permission.USERS_WRITE,
        Permission.WEIGHTS_WRITE,
        Permission.REPORTS_WRITE,
        Permission.RECEIVERS_READ,
        Permission.RECEIVERS_WRITE,
        Permission.AUDIT,
    },
    Role.ANALYST: _ANALYST,
    Role.AUDITOR: _AUDITOR,
}


def may(role: Role, permission: Permission, *, whole_deployment: bool) -> bool:
    """Return whether a user of this role has the permission."""
    return permission in PERMISSIONS[role] and (whole_deployment or permission not in DEPLOYMENT_ONLY)


MEANINGS: Mapping[Permission, str] = {
    Permission.ACCOUNT: "manage the own password, passkeys, codes and sessions",
    Permission.OVERVIEW: "see the dashboard",
    Permission.MESSAGES: "search messages, read the reasons for a verdict, use the safe preview",
    Permission.QUARANTINE_READ: "see held messages with recipients and reasons",
    Permission.QUARANTINE_WRITE: "release, delete and preview held messages",
    Permission.QUARANTINE_EXPORT: "export a held message as a file",
    Permission.ANALYZE: "analyze a message",
    Permission.LISTS_READ: "read and export lists, check a value",
    Permission.LISTS_WRITE: "add, change, delete and import entries, undo changes",
    Permission.TRAINING_READ: "see reports, cases and the state of training",
    Permission.TRAINING_WRITE: "report messages, undo reports, close cases",
    Permission.TRAINING_RESET: "delete all reports and statistics of a tenant",
    Permission.KEYS_READ: "see API keys and the names of tokens",
    Permission.KEYS_WRITE: "create, rotate and revoke API keys",
    Permission.USERS_READ: "see users",
    Permission.USERS_WRITE: "invite users, change their role, disable them",
    Permission.TENANTS_READ: "see tenants",
    Permission.TENANTS_WRITE: "create and change tenants",
    Permission.WEIGHTS_WRITE: "tune the weights of rules for a tenant",
    Permission.REPORTS_READ: "read weekly reports",
    Permission.REPORTS_WRITE: "switch the weekly email of a tenant on and off, choose its recipients",
    Permission.RECEIVERS_READ: "see the receivers of events and the state of their deliveries",
    Permission.RECEIVERS_WRITE: "add, test, pause and delete receivers of events, rotate their secrets",
    Permission.AUDIT: "read and export the audit log",
    Permission.HEALTH: "see guards, engines and the active configuration",
}
