"""Disk images: the files of an ISO 9660 image by name and content, so that what is packed into one can be seen.

Security: reads hostile images inside a killable worker; every number is checked against the image, directories are
visited once and counted, and what is cut or wrong ends the walk instead of raising.
"""

from collections.abc import Iterator

_SECTOR = 2_048
_DESCRIPTORS = 32  # volume descriptors that are read before their end is given up
_PRIMARY, _SUPPLEMENTARY, _END = 1, 2, 255
_JOLIET = (b"%/@", b"%/C", b"%/E")
_DIRECTORY = 2
_MAX_DIRECTORIES = 2_000
_MAX_RECORDS = 20_000


def walk_iso(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each file of an image; raise ValueError where no directory can be found."""
    root, wide = _root(content)
    waiting = [(root, "")]
    visited: set[int] = set()
    records = 0
    while waiting and len(visited) < _MAX_DIRECTORIES:
        (start, length), path = waiting.pop()
        if start in visited:
            continue
        visited.add(start)
        for name, extent, is_directory in _records(content, start, length, wide=wide):
            records += 1
            if records > _MAX_RECORDS:
                return
            if is_directory:
                waiting.append((extent, f"{path}{name}/"[:500]))
            else:
                yield f"{path}{name}", content[extent[0] : extent[0] + extent[1]]


def _root(content: bytes) -> tuple[tuple[int, int], bool]:
    """Return where the root directory lies; the directory with long names is preferred, because Windows shows it."""
    found: dict[bool, tuple[int, int]] = {}
    for number in range(16, 16 + _DESCRIPTORS):
        sector = content[number * _SECTOR : (number + 1) * _SECTOR]
        if sector[1:6] != b"CD001" or sector[0] == _END:
            break
        if sector[0] == _PRIMARY:
            found.setdefault(False, _extent(sector[156:190]))
        elif sector[0] == _SUPPLEMENTARY and sector[88:91] in _JOLIET:
            found.setdefault(True, _extent(sector[156:190]))
    if not found:
        raise ValueError("no directory")
    wide = True in found
    return found[wide], wide


def _extent(record: bytes) -> tuple[int, int]:
    return int.from_bytes(record[2:6], "little") * _SECTOR, int.from_bytes(record[10:14], "little")


def _records(content: bytes, start: int, length: int, *, wide: bool) -> Iterator[tuple[str, tuple[int, int], bool]]:
    end = min(start + length, len(content))
    position = start
    while position + 34 <= end:
        size = content[position]
        if size == 0:  # records do not cross sectors: the rest of this one is empty
            position = (position // _SECTOR + 1) * _SECTOR
            continue
        record = content[position : position + size]
        position += size
        if len(record) < 34:
            return
        raw = record[33 : 33 + record[32]]
        if raw in (b"\0", b"\1"):  # the directory itself, and the one above
            continue
        name = raw.decode("utf-16-be" if wide else "latin-1", "replace").partition(";")[0]
        yield name[:255], _extent(record), bool(record[25] & _DIRECTORY)
