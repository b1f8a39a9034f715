"""A server that takes mail over SMTP, but not for those it was told to refuse."""

from typing import Any


class ChoosySink:
    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # what is said to whom

    async def handle_RCPT(self, _: object, __: object, envelope: Any, address: str, ___: object) -> str:  # noqa: N802
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"
