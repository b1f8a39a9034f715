"""Calls of an MTA hook as Stalwart makes them: the header block taken apart, the body as text."""

import re
from collections.abc import Sequence
from typing import Any

_FIELD = re.compile(rb"[^\r\n]*+(?:\r\n[ \t][^\r\n]*+)*+\r\n")


def hook_call(
    message: bytes, recipients: Sequence[str] = ("bob@company.example",), stage: str = "data", **client: object
) -> dict[str, Any]:
    """Return the call for one message from the usual sender."""
    head, _, body = message.partition(b"\r\n\r\n")
    headers = []
    for field in _FIELD.findall(head + b"\r\n"):
        name, colon, value = field.partition(b":")
        headers.append([_text(name if colon else field), _text(value)])
    return {
        "context": {
            "stage": stage,
            "client": {
                "ip": "192.0.2.10",
                "port": 52_000,
                "ptr": None,
                "helo": "mail.pass.example",
                "activeConnections": 1,
                **client,
            },
            "server": {"name": "Stalwart", "port": 25, "ip": "192.0.2.1"},
            "queue": {"id": "1a"},
            "protocol": {"version": 1},
        },
        "envelope": {
            "from": {"address": "alice@pass.example", "parameters": {"size": "100"}},
            "to": [{"address": recipient} for recipient in recipients],
        },
        "message": {"headers": headers, "serverHeaders": [], "contents": _text(body), "size": len(message)},
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
