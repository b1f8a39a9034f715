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
    Right.ACCOUNT: "one's own password, passkeys, codes and sessions",
    Right.OVERVIEW: "the dashboard",
    Right.MESSAGES: "search messages, read why one was judged so, preview one safely",
    Right.QUARANTINE_READ: "see which messages are held, for whom and why",
    Right.QUARANTINE_WRITE: "release and delete held messages, see one in the safe preview",
    Right.QUARANTINE_EXPORT: "take a held message out as a file",
    Right.ANALYZE: "have a message analyzed",
    Right.LISTS_READ: "read and export lists, check a value",
    Right.LISTS_WRITE: "add, change, delete, import, undo",
    Right.LEARNING_READ: "see what people said of messages, and how much was learned",
    Right.LEARNING_WRITE: "say what a message is, give one to learn from, take back what was said",
    Right.LEARNING_RESET: "forget everything that was learned for a tenant",
    Right.KEYS_READ: "see API keys and the names of tokens",
    Right.KEYS_WRITE: "make, rotate and revoke API keys",
    Right.PEOPLE_READ: "see people",
    Right.PEOPLE_WRITE: "invite people, change their role, shut them out",
    Right.TENANTS_READ: "see tenants",
    Right.TENANTS_WRITE: "make and change tenants",
    Right.AUDIT: "read and export the audit",
    Right.HEALTH: "see guards, engines and the configuration in force",
}


def roles_page() -> str:
    """Return the page as Markdown."""
    head = " | ".join(ROLES[role] for role in Role)
    rows = [f"| `{right}` | {MEANINGS[right]} | {' | '.join(_cell(role, right) for role in Role)} |" for right in Right]
    return (
        "# Roles of the console\n\n"
        "A person has one role, for the whole deployment or for some tenants. A deployment administrator is always "
        "of the deployment, a tenant administrator always of tenants; analysts and auditors are either. Whoever is "
        "of tenants sees nothing but those: their messages, lists, keys, people and deeds. What a person may not see "
        "does not exist for them (404); what their role does not include is refused (403). "
        "A change of role, tenants or state ends the person's sessions and every setup link made for them or by them."
        "\n\n"
        f"| right | lets a person | {head} |\n|---|---|{'---|' * len(Role)}\n" + "\n".join(rows) + "\n\n"
        "¹ of the whole deployment only.\n"
    )


def _cell(role: Role, right: Right) -> str:
    if right not in RIGHTS[role]:
        return ""
    note = right in DEPLOYMENT_ONLY and role is not Role.DEPLOYMENT_ADMINISTRATOR
    return "yes ¹" if note else "yes"
