"""What an opaquely signed message (S/MIME, `application/pkcs7-mime`) signs: the text and the files that readers show.

Security: reads hostile BER inside a killable worker; every length is checked against the bytes, pieces are counted,
and what is cut or wrong yields what was read instead of raising.
"""

_SIGNED = bytes.fromhex("06092a864886f70d010702")  # id-signedData, tag and length included
_DATA = bytes.fromhex("06092a864886f70d010701")  # id-data
_WITHIN = 0xA0
_PIECE, _PIECES = 0x04, 0x24
_REACH = 4_096  # bytes from one name to the other: the names of digests stand between them
_MAX_PIECES = 100_000
_MAX_LENGTH = 4  # bytes that a length may take


def signed_content(signature: bytes) -> bytes:
    """Return the content that a signature holds within itself, or nothing where there is none."""
    signed = signature.find(_SIGNED, 0, 64)
    start = signature.find(_DATA, signed, signed + _REACH) if signed >= 0 else -1
    if start < 0:
        return b""
    tag, position, _ = _head(signature, start + len(_DATA))
    if tag != _WITHIN:  # signed apart: what it signs stands beside it
        return b""
    tag, position, end = _head(signature, position)
    if tag == _PIECE:
        return signature[position:end]
    return b"".join(_pieces(signature, position, end)) if tag == _PIECES else b""


def _pieces(signature: bytes, position: int, end: int) -> list[bytes]:
    """Gather the pieces that programs write when they do not know the length beforehand."""
    found: list[bytes] = []
    while position < end and len(found) < _MAX_PIECES:
        tag, start, stop = _head(signature, position)
        if tag != _PIECE:
            break
        found.append(signature[start:stop])
        position = stop
    return found


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
