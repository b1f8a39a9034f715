"""Writes the pages and files that are made from the code: `make docs`, and a house test that they are current."""

import sys
from pathlib import Path

from mailwarden.abby import config as abby
from mailwarden.cli.init import render, shipped_values
from mailwarden.console.permissions import roles_page
from mailwarden.guard import config as guard
from mailwarden.lists.pages import lists_page
from mailwarden.policy.pages import verdicts_and_tags
from mailwarden.settings.reference import table_of

_MADE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n\n"


def pages() -> dict[str, str]:
    """Return every made file by its path from the project's root."""
    shipped = shipped_values()
    return {
        "docs/configuration.md": _configuration(),
        "docs/lists.md": _MADE + lists_page(),
        "docs/console-roles.md": _MADE + roles_page(),
        "docs/verdicts-and-tags.md": _MADE + verdicts_and_tags(),
        f"deploy/config/{guard.PATH}": render("guard.yml", shipped),
        f"deploy/config/{abby.PATH}": render("abby.yml", shipped),
    }


def _configuration() -> str:
    return (
        f"{_MADE}# Configuration\n\n"
        "Two YAML files in one folder (`--config`, `$MAILWARDEN_CONFIG`, or `/etc/mailwarden`). "
        "Relative paths in them start at that folder. Unknown keys are refused; `mailwarden config check` reports "
        "every mistake with its file, line and key. A change needs a restart of the process it belongs to. "
        "`deploy/config` has both files as shipped.\n\n"
        f"## guard: `{guard.PATH}`\n\n{table_of(guard.GuardConfig)}\n\n"
        f"## abby: `{abby.PATH}`\n\n{table_of(abby.AbbyConfig)}\n\n"
        "### Permissions of a static token\n\n"
        "| permission | lets the token |\n|---|---|\n"
        "| `messageQueue.submit` | submit messages |\n"
        "| `messageQueue.read` | read the explanation of a message |\n"
        "| `messageQueue.report` | report messages, and see and undo what a tenant learned from reports |\n"
        "| `quarantine.read` | see which messages are held |\n"
        "| `quarantine.manage` | release and delete held messages, and take them out |\n"
        "| `admin.status` | ask for the system status |\n"
        "| `admin.metrics` | read abby's metrics |\n"
        "| `tenant:<uuid>` | act for that tenant only; repeatable |\n"
        "| `*` | everything |\n\n"
        "No permissions, or an empty list, means `messageQueue.submit` and `admin.status`. "
        "A list with nothing but `tenant:` entries grants nothing else.\n"
    )


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for path, text in pages().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
