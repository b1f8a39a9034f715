"""Writes the generated pages and files: for `make docs`, and for the test that they are current."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from mailwarden.abby import config as abby
from mailwarden.cli.init import render, shipped_values
from mailwarden.guard import config as guard
from mailwarden.settings.reader import by_type
from mailwarden.settings.reload import Reloadable
from workshop.pages.events import events_page
from workshop.pages.lists import lists_page
from workshop.pages.roles import roles_page
from workshop.pages.verdicts import verdicts_and_tags

_MADE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n\n"


class Key(msgspec.Struct, frozen=True):
    """One key of a configuration file."""

    path: str
    kind: str
    default: str
    meaning: str


def keys_of(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Key]:
    """Yield every key of a record and of its nested records, in the order of the code."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        path = f"{prefix}{field.encode_name}"
        bare, notes = _unwrap(hints[field.name])
        inner = _record_in(bare)
        named = by_type(get_args(bare)[1]) if get_origin(bare) is dict else {}
        meaning = " ".join(note.description for note in notes if note.description)
        if named:
            yield Key(path, "mapping by name", _required(field), meaning)
            for name, record in named.items():
                yield Key(f"{path}.{name}", "mapping", "", _first_line(record))
                yield from keys_of(record, f"{path}.{name}.")
            continue
        if inner is None:
            yield Key(path, _name(bare, notes), _default(field), meaning)
            continue
        listed = get_origin(bare) is tuple
        yield Key(path, "list" if listed else "mapping", _required(field), meaning or _first_line(inner))
        yield from keys_of(inner, f"{path}[]." if listed else f"{path}.")


def table_of(kind: type[msgspec.Struct], reloadable: Reloadable) -> str:
    """Return the keys as a Markdown table."""
    rows = [
        f"| `{key.path}` | {key.kind} | {key.default} | {'yes' if _reloads(key, reloadable) else ''} | {key.meaning} |"
        for key in keys_of(kind)
    ]
    return "\n".join(["| key | type | default | reload | meaning |", "|---|---|---|---|---|", *rows])


def _reloads(key: Key, reloadable: Reloadable) -> bool:
    return reloadable.covers(key.path.replace("[]", ""))


def _unwrap(kind: object) -> tuple[object, list[msgspec.Meta]]:
    notes: list[msgspec.Meta] = []
    while get_origin(kind) is Annotated:
        kind, *found = get_args(kind)
        notes += [note for note in found if isinstance(note, msgspec.Meta)]
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (arg for arg in get_args(kind) if arg is not type(None))
        kind, inner = _unwrap(kind)
        notes += inner
    return kind, notes


def _record_in(kind: object) -> type[msgspec.Struct] | None:
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _name(kind: object, notes: list[msgspec.Meta]) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return "list of text"
    if get_origin(kind) is dict:
        return f"mapping to {_name(_unwrap(get_args(kind)[1])[0], [])}"
    name = {int: "number", str: "text", bool: "yes or no", float: "number"}.get(kind, str(kind))  # type: ignore[call-overload]
    low = next((note.ge for note in notes if note.ge is not None), None)
    high = next((note.le for note in notes if note.le is not None), None)
    if low is not None and high is not None:
        return f"{name}, {low:,} to {high:,}"
    return f"{name}, at least {low:,}" if low is not None else str(name)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    match field.default:
        case None | msgspec.NODEFAULT:
            return "unset"
        case "" | ():
            return "empty"
        case tuple() as values:
            return ", ".join(f"`{value}`" for value in values)
        case value:
            return f"`{value}`"


def _required(field: msgspec.structs.FieldInfo) -> str:
    return "required" if field.required else ""


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0]


def pages() -> dict[str, str]:
    """Return every generated file by its path from the project's root."""
    shipped = shipped_values()
    return {
        "docs/configuration.md": _configuration(),
        "docs/events.md": _MADE + events_page(),
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
        "`mailwarden config check` reports every error with file, line and key. "
        "A process reads a change of the keys marked *reload* on SIGHUP (`systemctl reload`); other keys need a "
        "restart. See [Reload settings](operating.md#reload-settings). "
        "`deploy/config` contains both files as shipped.\n\n"
        f"## guard: `{guard.PATH}`\n\n{table_of(guard.GuardConfig, guard.RELOADABLE)}\n\n"
        f"## abby: `{abby.PATH}`\n\n{table_of(abby.AbbyConfig, abby.RELOADABLE)}\n\n"
        "### Permissions of a static token\n\n"
        "| permission | allows a token to |\n|---|---|\n"
        "| `messageQueue.submit` | submit messages |\n"
        "| `messageQueue.read` | search and count messages, read their explanations |\n"
        "| `messageQueue.report` | report messages, see and undo reports, reset training |\n"
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
