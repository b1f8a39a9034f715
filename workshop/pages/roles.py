"""The page about the roles of the console, made from their permissions."""

from mailwarden.access.users import Role
from mailwarden.console.permissions import DEPLOYMENT_ONLY, MEANINGS, PERMISSIONS, Permission
from mailwarden.console.texts import ROLES


def roles_page() -> str:
    """Return the page as Markdown."""
    head = " | ".join(ROLES[role] for role in Role)
    rows = [
        f"| `{permission}` | {MEANINGS[permission]} | {' | '.join(_cell(role, permission) for role in Role)} |"
        for permission in Permission
    ]
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


def _cell(role: Role, permission: Permission) -> str:
    if permission not in PERMISSIONS[role]:
        return ""
    note = permission in DEPLOYMENT_ONLY and role is not Role.DEPLOYMENT_ADMINISTRATOR
    return "yes ¹" if note else "yes"
