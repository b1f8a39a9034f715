"""How commands print: records as JSON, rows as a table, and the text of strangers without harm."""

from collections.abc import Sequence

import msgspec


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, each as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shown(text: str) -> str:
    """Return a text of strangers without what a terminal would take for a command."""
    return "".join(each if each.isprintable() else " " for each in text) or "-"
