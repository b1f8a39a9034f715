"""The permissions of the APIs: the name of each in abby.yml for static tokens, and as a scope of API keys."""

from enum import Enum, StrEnum

EVERYTHING = "*"  # every permission that a token can have
DEFAULT_PERMISSIONS = ("admin.status", "messageQueue.submit")  # of a token that names none


class KeyScope(StrEnum):
    """The scopes of a key; none implies another."""

    READ = "lists:read"
    WRITE = "lists:write"
    SUBMIT = "messages:submit"
    MESSAGES = "messages:read"
    REPORTS = "reports:write"
    HELD = "quarantine:read"
    RELEASE = "quarantine:manage"
    EVENTS = "events:read"
    STATUS = "status:read"


class ApiPermission(Enum):
    """A permission of a caller: its name in a token, and the scope of keys that has it.

    None: no token has it, or no key. A new permission is a row here, with its scope above.
    """

    SUBMIT = ("messageQueue.submit", KeyScope.SUBMIT)
    READ = ("messageQueue.read", KeyScope.MESSAGES)
    REPORT = ("messageQueue.report", KeyScope.REPORTS)
    HELD = ("quarantine.read", KeyScope.HELD)
    RELEASE = ("quarantine.manage", KeyScope.RELEASE)
    EVENTS = (EVERYTHING, KeyScope.EVENTS)
    STATUS = ("admin.status", KeyScope.STATUS)
    METRICS = ("admin.metrics", None)
    LISTS_READ = (None, KeyScope.READ)
    LISTS_WRITE = (None, KeyScope.WRITE)

    def __init__(self, token: str | None, scope: KeyScope | None) -> None:
        self.token = token
        self.scope = scope


# The names that abby.yml accepts, the star last.
TOKEN_PERMISSIONS = (
    *(each.token for each in ApiPermission if each.token is not None and each.token != EVERYTHING),
    EVERYTHING,
)
