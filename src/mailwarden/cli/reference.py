"""Writes the generated pages and files: for `make docs`, and for the test that they are current."""

import sys
from pathlib import Path

from mailwarden.abby import config as abby
from mailwarden.cli.init import render, shipped_values
from mailwarden.console.permissions import roles_page
from mailwarden.guard import config as guard
from mailwarden.lists.reference import lists_page
from mailwarden.policy.catalogue import verdicts_and_tags
from mailwarden.settings.reference import table_of

_MADE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n\n"


def pages() -> dict[str, str]:
    """Return every generated file by its path from the project's root."""
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
        "For operators. The configuration is two YAML files in one folder (`--config`, `$MAILWARDEN_CONFIG`, or "
        "`/etc/mailwarden`). Relative paths start at that folder. Unknown keys are errors. "
        "`mailwarden config check` reports every error with file, line and key. Restart the process after a change. "
        "`deploy/config` contains both files as shipped.\n\n"
        f"## guard: `{guard.PATH}`\n\n{table_of(guard.GuardConfig)}\n\n"
        f"## abby: `{abby.PATH}`\n\n{table_of(abby.AbbyConfig)}\n\n"
        "### Permissions of a static token\n\n"
        "| permission | allows a token to |\n|---|---|\n"
        "| `messageQueue.submit` | submit messages |\n"
        "| `messageQueue.read` | read the explanation of a message |\n"
        "| `messageQueue.report` | report messages, see and undo reports, reset learning |\n"
        "| `quarantine.read` | see held messages |\n"
        "| `quarantine.manage` | release, delete and export held messages |\n"
        "| `admin.status` | read the system status |\n"
        "| `admin.metrics` | read abby's metrics |\n"
        "| `tenant:<uuid>` | act for this tenant only; repeatable |\n"
        "| `*` | everything |\n\n"
        "A missing or empty list means `messageQueue.submit` and `admin.status`. "
        "A list with only `tenant:` entries grants no further permission.\n"
    )


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for path, text in pages().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
