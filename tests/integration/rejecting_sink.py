"""An SMTP server that accepts mail except for the recipients in `refused`."""

from typing import Any


class RejectingSink:
    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # reply by recipient

    async def handle_RCPT(self, _: object, __: object, envelope: Any, address: str, ___: object) -> str:  # noqa: N802
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"
