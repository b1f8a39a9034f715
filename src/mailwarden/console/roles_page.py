"""The page of the docs that says what each role may do, made from the table that decides it."""

from collections.abc import Mapping

from mailwarden.access.people import Role
from mailwarden.console.rights import DEPLOYMENT_ONLY, RIGHTS, Right
from mailwarden.console.wording import ROLES

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
