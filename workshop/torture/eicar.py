"""The EICAR test file and the pieces of ambiguous messages.

The test file is assembled at run time, so that no file of ours contains it.
"""

from base64 import b64encode, encodebytes

EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}" + b"$EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!" + b"$H+H*"
B64 = b64encode(EICAR)
LINES = encodebytes(EICAR).replace(b"\n", b"\r\n")
TOP = b"From: a@sender.example\r\nTo: b@recipient.example\r\nSubject: papers\r\nMIME-Version: 1.0\r\n"
MIXED = b'Content-Type: multipart/mixed; boundary="b"\r\n'
BINARY = b"Content-Type: application/octet-stream\r\n"
CTE = b"Content-Transfer-Encoding: base64\r\n"
NAMED = b'Content-Disposition: attachment; filename="e.com"\r\n'
FILE = BINARY + CTE + NAMED + b"\r\n" + LINES


def part(head: bytes, body: bytes = LINES) -> bytes:
    """Put one part into a valid multipart, behind a harmless text."""
    text = b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
    return TOP + MIXED + b"\r\n" + text + b"--b\r\n" + head + b"\r\n" + body + b"\r\n--b--\r\n"


def whole(head: bytes, body: bytes = LINES) -> bytes:
    return TOP + head + b"\r\n" + body


def multi(kind: bytes, body: bytes) -> bytes:
    return TOP + kind + b"\r\n" + body
