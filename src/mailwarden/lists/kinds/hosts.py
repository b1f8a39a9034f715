"""IPv4 addresses in the spellings that only browsers take: octal, hexadecimal, and fewer than four numbers.

Security: such spellings are chosen to hide; each number is bounded before it is read.
"""

import re

_NUMBER = re.compile(r"0x[0-9a-f]{0,16}|[0-9]{1,16}", re.ASCII)


def read_ipv4_as_browsers_do(host: str) -> str | None:
    """Return the address with dots that a host of numbers leads to, or None where it is no address."""
    pieces = host.split(".", 4)
    if len(pieces) > 4 or not all(map(_NUMBER.fullmatch, pieces)):
        return None
    numbers = [_read_number(piece) for piece in pieces]
    *heads, last = numbers
    if any(number is None or number > 255 for number in heads) or last is None or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for place, head in enumerate(heads):
        value += (head or 0) << (8 * (3 - place))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _read_number(piece: str) -> int | None:
    if piece.startswith("0x"):
        return int(piece[2:] or "0", 16)
    if len(piece) > 1 and piece[0] == "0":
        return int(piece, 8) if not set(piece) & {"8", "9"} else None
    return int(piece)
