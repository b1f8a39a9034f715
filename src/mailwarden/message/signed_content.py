"""What an opaquely signed message (S/MIME, `application/pkcs7-mime`) signs: the text and the files that readers show.

Security: reads hostile BER inside a killable worker; every length is checked against the bytes, and what is cut or
wrong yields what was read instead of raising.
"""

from collections.abc import Iterator

_SIGNED = bytes.fromhex("06092a864886f70d010702")  # id-signedData, tag and length included
_DATA = bytes.fromhex("06092a864886f70d010701")  # id-data
_WITHIN = 0xA0
_PIECE, _PIECES = 0x04, 0x24
_BEGINNING = 64  # bytes in which the name of the type stands: a tag and a length before it
_MAX_LENGTH = 4  # not inspection: a longer length is beyond any message


def signed_contents(signature: bytes) -> Iterator[bytes]:
    """Yield the content that a signature holds within itself; each, where more than one place looks like it."""
    position = signature.find(_SIGNED, 0, _BEGINNING)
    while position >= 0 and (position := signature.find(_DATA, position)) >= 0:
        position += len(_DATA)
        tag, inner, _ = _head(signature, position)
        if tag != _WITHIN:  # signed apart, so the content stands beside it; or another use of the same name
            continue
        tag, start, end = _head(signature, inner)
        if tag == _PIECE:
            yield signature[start:end]
            position = end
        elif tag == _PIECES:
            content, position = _join(signature, start, end)
            yield content


def _join(signature: bytes, position: int, end: int) -> tuple[bytes, int]:
    """Join the pieces that programs write when they do not know the length beforehand; pieces may hold pieces."""
    joined = bytearray()
    while position < end:
        tag, start, stop = _head(signature, position)
        if tag == _PIECE:
            joined += signature[start:stop]
            position = stop
        elif tag == _PIECES:
            position = start
        else:
            break
    return bytes(joined), position


def _head(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the tag that stands there, and where its content begins and ends; without a length it ends with all."""
    if position + 2 > len(data):
        return 0, len(data), len(data)
    tag, length = data[position], data[position + 1]
    position += 2
    if length == 0x80:
        return tag, position, len(data)
    if length > 0x80:
        size = length & 0x7F
        if size > _MAX_LENGTH:
            return 0, len(data), len(data)
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    return tag, position, min(position + length, len(data))
