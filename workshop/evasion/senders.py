"""Forged senders: the visible From is of company.example, while pass.example authenticates."""

from collections.abc import Iterator

_REST = (
    b"To: bob@company.example\r\nSubject: Minutes of Thursday\r\nDate: Mon, 05 Jan 2026 10:00:00 +0000\r\n"
    b"Message-ID: <sender-%d@pass.example>\r\nMIME-Version: 1.0\r\n\r\nHello Bob, the minutes are ready.\r\n"
)
FORGED = b"Ceo <ceo@company.example>"
OWN = b"Alice <alice@pass.example>"

FIELDS: dict[str, bytes] = {
    "forged, plainly": b"From: " + FORGED,
    "blank before the colon": b"From : " + FORGED,
    "tab before the colon": b"From\t: " + FORGED,
    "blank before the colon, own From behind": b"From : " + FORGED + b"\r\nFrom: " + OWN,
    "blank before the colon, own From before": b"From: " + OWN + b"\r\nFrom : " + FORGED,
    "two From fields": b"From: " + OWN + b"\r\nFrom: " + FORGED,
    "two From fields, turned": b"From: " + FORGED + b"\r\nFrom: " + OWN,
    "three From fields": b"From: " + OWN + b"\r\nfrom: " + OWN + b"\r\nFROM: " + FORGED,
    "two mailboxes": b"From: " + FORGED + b", " + OWN,
    "two mailboxes, turned": b"From: " + OWN + b", " + FORGED,
    "two mailboxes without a comma": b"From: <ceo@company.example> <alice@pass.example>",
    "address before an address": b"From: ceo@company.example <alice@pass.example> <ceo@company.example>",
    "address in a comment": b"From: ceo@company.example (alice@pass.example)",
    "blank inside the address": b"From: ceo@company.example alice@pass.example",
    "blank before the at sign": b"From: ceo @company.example, alice@pass.example",
    "route": b"From: <@pass.example:ceo@company.example>",
    "two at signs": b"From: <ceo@company.example@pass.example>",
    "two at signs, turned": b"From: <alice@pass.example@company.example>",
    "NUL behind the address": b"From: <ceo@company.example\x00@pass.example>",
    "group": b"From: staff: " + FORGED + b", " + OWN + b";",
    "unclosed quote": b'From: "Ceo <ceo@company.example>, Alice <alice@pass.example>',
    "unclosed bracket": b"From: Ceo <ceo@company.example, Alice <alice@pass.example>",
    "folded before the colon": b"From\r\n : " + FORGED,
    "carriage return alone": b"From: " + OWN + b"\rFrom: " + FORGED,
    "encoded address": b"From: =?utf-8?B?Y2VvQGNvbXBhbnkuZXhhbXBsZQ==?= <alice@pass.example>, <ceo@company.example>",
    "behind a line of blanks": b"X-A: b\r\n \r\nFrom: " + FORGED,
    "backslash in quotes": b'From: "a\\" <alice@pass.example>" <ceo@company.example>',
    "fullwidth at sign": "From: <alice＠pass.example@company.example>".encode(),
}


def sender_cases() -> Iterator[tuple[str, bytes]]:
    for number, (name, fields) in enumerate(FIELDS.items()):
        yield f"sender: {name}", fields + b"\r\n" + _REST % number
