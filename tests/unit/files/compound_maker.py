"""Makes small compound files with the streams that a test needs."""

import struct

SECTOR = 512
END, FREE, FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def compound(streams: dict[str, bytes]) -> bytes:
    """Return a compound file; each stream is padded to the size from which it needs no small sectors."""
    entries = [entry("Root Entry", 5, child=1 if streams else FREE, start=END, size=0)]
    bodies: list[bytes] = []
    chain: list[int] = []
    names = list(streams)
    for number, name in enumerate(names, 1):
        body = streams[name].ljust(4_096, b"\0")
        body += b"\0" * (-len(body) % SECTOR)
        first, count = len(chain), len(body) // SECTOR
        chain += [*range(first + 1, first + count), END]
        bodies.append(body)
        entries.append(entry(name, 2, right=number + 1 if number < len(names) else FREE, start=first, size=len(body)))
    entries += [b"\0" * 128] * (-len(entries) % 4)
    first, count = len(chain), len(entries) // 4
    chain += [*range(first + 1, first + count), END]
    sectors = len(chain) // 127 + 1
    table = [*chain, *[FAT] * sectors]
    assert len(table) <= sectors * 128
    table += [FREE] * (sectors * 128 - len(table))
    where = [len(chain) + number for number in range(sectors)]
    head = struct.pack("<8s16sHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", bytes(16), 62, 3, 0xFFFE, 9, 6,
                       0, sectors, first, 0, 4_096, END, 0, END, 0)  # fmt: skip
    head += struct.pack("<109I", *where, *[FREE] * (109 - sectors))
    return head + b"".join(bodies) + b"".join(entries) + struct.pack(f"<{len(table)}I", *table)


def entry(name: str, kind: int, *, right: int = FREE, child: int = FREE, start: int, size: int) -> bytes:
    text = (name + "\0").encode("utf-16-le")
    fields = (text, len(text), kind, 1, FREE, right, child, bytes(16), 0, 0, 0, start, size)
    return struct.pack("<64sHBBIII16sIQQIQ", *fields)


def packed_source(source: bytes) -> bytes:
    """Pack the source of a macro without copies: every eighth byte is a flag."""
    out = b"\x01"
    for start in range(0, len(source), 3_600):
        chunk = source[start : start + 3_600]
        body = b"".join(b"\0" + chunk[place : place + 8] for place in range(0, len(chunk), 8))
        out += struct.pack("<H", 0xB000 | (len(body) - 1)) + body
    return out


def macro_file(code: str) -> bytes:
    source = b'Attribute VB_Name = "Module1"\r\n' + code.encode("latin-1")
    return compound({"_VBA_PROJECT": b"\xcc\x61", "Module1": packed_source(source)})
