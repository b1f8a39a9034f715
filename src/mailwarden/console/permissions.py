"""What each role may do in the console: one table, read by the pages and by the tests."""

from collections.abc import Mapping
from enum import StrEnum

from mailwarden.access.people import Role
from mailwarden.console.texts import ROLES


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


MEANINGS: Mapping[Right, str] = {
    Right.ACCOUNT: "manage the own password, passkeys, codes and sessions",
    Right.OVERVIEW: "see the dashboard",
    Right.MESSAGES: "search messages, read the reasons for a verdict, use the safe preview",
    Right.QUARANTINE_READ: "see held messages with recipients and reasons",
    Right.QUARANTINE_WRITE: "release, delete and preview held messages",
    Right.QUARANTINE_EXPORT: "export a held message as a file",
    Right.ANALYZE: "analyze a message",
    Right.LISTS_READ: "read and export lists, check a value",
    Right.LISTS_WRITE: "add, change, delete and import entries, undo changes",
    Right.LEARNING_READ: "see reports and the state of learning",
    Right.LEARNING_WRITE: "report messages, undo reports",
    Right.LEARNING_RESET: "delete all reports and statistics of a tenant",
    Right.KEYS_READ: "see API keys and the names of tokens",
    Right.KEYS_WRITE: "create, rotate and revoke API keys",
    Right.PEOPLE_READ: "see users",
    Right.PEOPLE_WRITE: "invite users, change their role, disable them",
    Right.TENANTS_READ: "see tenants",
    Right.TENANTS_WRITE: "create and change tenants",
    Right.AUDIT: "read and export the audit log",
    Right.HEALTH: "see guards, engines and the active configuration",
}


def roles_page() -> str:
    """Return the page as Markdown."""
    head = " | ".join(ROLES[role] for role in Role)
    rows = [f"| `{right}` | {MEANINGS[right]} | {' | '.join(_cell(role, right) for role in Role)} |" for right in Right]
    return (
        "# Console roles\n\n"
        "For administrators. A user has one role, for the whole deployment or for some tenants. Deployment "
        "administrators always belong to the deployment, tenant administrators always to tenants; analysts and "
        "auditors belong to either. A user of tenants sees only their messages, lists, keys, users and audit events. "
        "Objects of other tenants return 404; actions outside the role return 403. "
        "A change of role, tenants or state ends the user's sessions and every setup link made for or by the user."
        "\n\n"
        f"| permission | allows a user to | {head} |\n|---|---|{'---|' * len(Role)}\n" + "\n".join(rows) + "\n\n"
        "¹ only for users of the whole deployment.\n"
    )


def _cell(role: Role, right: Right) -> str:
    if right not in RIGHTS[role]:
        return ""
    note = right in DEPLOYMENT_ONLY and role is not Role.DEPLOYMENT_ADMINISTRATOR
    return "yes ¹" if note else "yes"
