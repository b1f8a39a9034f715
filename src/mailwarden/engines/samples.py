"""The harmless samples that `mailwarden doctor` sends: test files that every engine knows, and messages around them."""

import base64
import io
import zipfile
from functools import cache

MAX_MESSAGE = 52_428_800  # not inspection: the size of the largest sample, as many bytes as guard accepts
DEEPEST = 110  # archives in archives: more than any engine opens

# Put together here, so that no scanner takes this file for what it describes.
EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*" + b"GTUBE-STANDARD-ANTI-UBE-TEST-" + b"EMAIL*C.34X"

_HEAD = (
    b"From: doctor@mailwarden.invalid\r\nTo: doctor@mailwarden.invalid\r\nSubject: A test by mailwarden doctor\r\n"
    b"Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nMessage-ID: <doctor@mailwarden.invalid>\r\nMIME-Version: 1.0\r\n"
)
# A signature of a domain that does not exist: a resolver that works says so.
_SIGNATURE = (
    b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=mailwarden.invalid; s=doctor; h=from:to:subject;\r\n"
    b" bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=; b=" + base64.b64encode(bytes(128)) + b"\r\n"
)


def text_message(text: bytes) -> bytes:
    return _HEAD + b"Content-Type: text/plain\r\n\r\n" + text + b"\r\n"


def signed_message() -> bytes:
    """Return a message whose DKIM key cannot exist."""
    return _SIGNATURE + text_message(b"Is the name server there?")


def message_with(name: str, content: bytes, size: int = 0) -> bytes:
    """Return a message with an attachment, made up to `size` bytes by a second one."""
    head = _HEAD + b"Content-Type: multipart/mixed; boundary=doctor\r\n\r\n"
    part = (
        b"--doctor\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
        b'Content-Disposition: attachment; filename="%b"\r\n\r\n'
    )
    first = part % name.encode("ascii") + base64.encodebytes(content).replace(b"\n", b"\r\n")
    end = b"--doctor--\r\n"
    if not size:
        return head + first + end
    second = part % b"padding.bin"
    line = b"bWFpbHdhcmRlbiBkb2N0b3I=" * 3 + b"\r\n"
    room = size - len(head) - len(first) - len(second) - len(end)
    padding = line * (room // len(line))
    return head + first + second + padding + b"\r\n" * ((room - len(padding)) // 2) + b" " * (room % 2) + end


def encrypted_archive() -> bytes:
    """Return a ZIP file whose entry is marked as encrypted, without any valid password."""
    content = bytearray(_zip("secret.txt", bytes(range(32))))
    content[6] |= 1  # the flag in the local header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    return bytes(content)


@cache
def deep_archive() -> bytes:
    """Return archives in each other, deeper than any engine opens."""
    content = EICAR
    for level in range(DEEPEST):
        content = _zip(f"{level}.zip" if level else "test.com", content)
    return content


def broken_program() -> bytes:
    """Return the beginning of a Windows program whose sections are missing."""
    header = b"MZ" + bytes(58) + (64).to_bytes(4, "little")
    return header + b"PE\0\0" + b"\x4c\x01\x03\x00" + bytes(12) + b"\xe0\x00\x02\x01" + b"\x0b\x01" + bytes(40)


def _zip(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
    return file.getvalue()
