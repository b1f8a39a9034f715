"""Replicas made without a database, from lists that are written down in a test."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from mailwarden.lists.catalogue import find_list
from mailwarden.lists.replica.file import ReplicaFolder
from mailwarden.lists.replica.writer import ListRow, Position, WholeCopy

# An entry, or an entry with its expiry as text, or with its expiry and its comment.
Given = str | tuple[str, str] | tuple[str, str, str]
POSITION = Position("nowhere", "1:1:", 0.0)


def write_replica(path: Path, lists: Mapping[tuple[UUID | None, str], Sequence[Given]]) -> None:
    """Write a replica that holds these lists and nothing else."""
    folder = ReplicaFolder(path)
    folder.prepare()
    rows = [
        ListRow(number, tenant, name, len(entries)) for number, ((tenant, name), entries) in enumerate(lists.items(), 1)
    ]
    copy = WholeCopy(folder, rows)
    lines = []
    for row, entries in zip(rows, lists.values(), strict=True):
        for given in entries:
            entry, expires, comment = (given, "", "") if isinstance(given, str) else (*given, "")[:3]
            stored = find_list(row.name).normalise(entry)
            lines.append("\x01".join((str(row.list_id), stored, expires, json.dumps(comment))))
    copy.take("".join(f"{line}\n" for line in lines).encode())
    copy.finish(POSITION)
    folder.say_fed(0.0)
