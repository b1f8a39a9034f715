"""One DNS question to one server over UDP, without a message object for each question and answer.

dnspython takes about 0.4 ms for a question, and guard asks one for many messages. This module asks, and reads plain
answers. It leaves every other answer to dnspython: truncated ones, unusual ones and malformed ones.
Security: reads bytes of a resolver. Each question has a random id and a new source port (RFC 5452, section 4.5), and an
answer counts only with this id, from the server's own address, for the same question.
"""

import asyncio
import secrets
import socket
from functools import lru_cache

import dns.message
import dns.name
import dns.rdataclass
import dns.rdatatype
from msgspec import Struct

_ID, _HEAD = 2, 12  # bytes of the id, and of the whole header (RFC 1035, section 4.1.1)
_RESPONSE, _OPCODE, _TRUNCATED, _RCODE = 0x8000, 0x7800, 0x0200, 0x000F
_POINTER = 0xC0  # a compressed name ends with two bytes (RFC 1035, section 4.1.4)
_RECORD_HEAD = 10  # type, class, time to live and length
_IPV4 = 4  # bytes of an address
_DATAGRAM = 65_535  # the longest that UDP can carry


class Question(Struct, frozen=True):
    """A question as it is sent, without its id."""

    wire: bytes
    kind: int


class Reply(Struct, frozen=True):
    """A response code, and the matching records: the text of a TXT record, the address of an A record."""

    code: int
    records: tuple[str, ...]


@lru_cache(maxsize=256)  # above all for the name of the probe
def make_question(name: str, kind: str) -> Question:
    """Return the question; raise DNSException or UnicodeError for a name that cannot exist."""
    wanted = dns.rdatatype.from_text(kind)
    return Question(dns.message.make_query(dns.name.from_text(name), wanted).to_wire()[_ID:], int(wanted))


async def exchange(host: str, port: int, question: Question) -> bytes:
    """Return the answer of a server; raise OSError. The caller limits the time."""
    asked = secrets.token_bytes(_ID)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    loop = asyncio.get_running_loop()
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as port_of_question:
        port_of_question.connect((host, port))  # from now on it receives datagrams of this address alone
        port_of_question.send(asked + question.wire)
        while True:
            answer = await loop.sock_recv(port_of_question, _DATAGRAM)
            if answer[:_ID] == asked:
                return answer


def read_reply(answer: bytes, question: Question) -> Reply | None:
    """Return the records of a plain answer, or None for one that dnspython has to read."""
    if len(answer) < _HEAD:
        return None
    flags, questions, count = (int.from_bytes(answer[at : at + 2]) for at in (2, 4, 6))
    asked = question.wire[_HEAD - _ID :]
    plain = flags & _RESPONSE and not flags & (_OPCODE | _TRUNCATED) and questions == 1
    if not plain or answer[_HEAD : _HEAD + len(asked)] != asked:
        return None
    records: list[str] = []
    at = _HEAD + len(asked)
    try:
        for _ in range(count):
            at = _skip_name(answer, at)
            kind, space = int.from_bytes(answer[at : at + 2]), int.from_bytes(answer[at + 2 : at + 4])
            begin = at + _RECORD_HEAD
            at = begin + int.from_bytes(answer[begin - 2 : begin])
            if at > len(answer) or at < begin or space != dns.rdataclass.IN:
                return None
            if kind == question.kind:
                records.append(_shown(kind, answer[begin:at]))
    except IndexError:
        return None
    return Reply(flags & _RCODE, tuple(records))


def _skip_name(answer: bytes, at: int) -> int:
    """Return the position after a name; raise IndexError beyond the end."""
    while length := answer[at]:
        if length >= _POINTER:
            return at + 2
        at += length + 1
    return at + 1


def _shown(kind: int, data: bytes) -> str:
    """Return the text of a TXT record, the address of an A record, and no text of others."""
    if kind == dns.rdatatype.TXT:
        return _text(data)
    return ".".join(map(str, data)) if kind == dns.rdatatype.A and len(data) == _IPV4 else ""


def _text(data: bytes) -> str:
    """Return the strings of a TXT record as one text (RFC 7208, section 3.3); raise IndexError if one is cut off."""
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        if end > len(data):
            raise IndexError(end)
        parts.append(data[at + 1 : end])
        at = end
    return b"".join(parts).decode("utf-8", "replace")
