"""Two tenants of one product: their credentials and data, and a search of every answer for data of the other."""

import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import requests

from mailwarden.access.permissions import KeyScope
from tests.acceptance.client import FORM, SUBMIT, email, form, parameters
from tests.faults.list_calls import PREFIX, make_key, make_tenants
from workshop.rig.product import Product

NOBODY = "00000000-0000-4000-8000-000000000000"
SENDER = "mate@pass.example"  # writes to both
COMMON = [SENDER, *(f"n{number}.common.example" for number in range(6))]
LISTS = ("sender-block", "sender-allow", "recipient-exempt")
KEYS = {"both": (KeyScope.READ, KeyScope.WRITE), "read": (KeyScope.READ,), "write": (KeyScope.WRITE,)}


@dataclass
class Side:
    """One tenant. Its marker is in all its data: entries, comments, key names, subjects, addresses."""

    name: str
    marker: str = field(default_factory=lambda: f"mk{secrets.token_hex(6)}")
    uid: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    entries: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in LISTS})
    ggrids: list[str] = field(default_factory=list)

    @property
    def domain(self) -> str:
        return f"{self.marker}.{self.name}.example"

    @property
    def choices(self) -> list[str]:
        """Return the entries that this tenant works with: its own, and those that the other has as well."""
        return [*COMMON, *(f"e{number}.{self.marker}.example" for number in range(6))]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def outcome(self) -> tuple[int, str]:
        return self.status, str(json.loads(self.body).get("error", ""))


class TenantPair:
    """The product with both tenants and the deployment, whose global entries are hidden from tenants."""

    def __init__(self, product: Product) -> None:
        self.acme, self.club, self.deployment = (Side(name) for name in ("acme", "club", "whole"))
        self.sides = (self.acme, self.club)
        self.steps = 0
        self.answers = 0
        self.bytes = 0
        self._product = product
        self._session = requests.Session()
        self._session.trust_env = False
        self._numbers = itertools.count()

    async def settle(self, database_url: str) -> None:
        """Make the tenants, their keys and their tokens; abby takes the tokens up at its start."""
        for side in self.sides:
            made = await make_tenants(database_url, {f"{side.name} {side.marker}": side.domain})
            [side.uid] = made.values()
            for name, scopes in KEYS.items():
                key = f"{name} of {side.marker}"
                side.keys[name] = await make_key(self._product, database_url, key, side.uid, scopes=scopes)
        self.deployment.keys["both"] = await make_key(self._product, database_url, self.deployment.marker)
        tokens = [
            {"name": f"token of {side.marker}", "token": side.token, "permissions": ["*", f"tenant:{side.uid}"]}
            for side in self.sides
        ]
        self._product.abby.configure({"staticApiTokens": tokens})

    def other(self, side: Side) -> Side:
        return self.club if side is self.acme else self.acme

    def ask(
        self, side: Side, method: str, path: str, *, headers: Mapping[str, str] | None = None, data: bytes | None = None
    ) -> Answer:
        """Make a call as this tenant; not a byte of the answer may be another's."""
        response = self._session.request(
            method,
            self._product.url + path,
            headers=dict(headers or {}),
            data=data,
            verify=str(self._product.ca),
            timeout=30,
            allow_redirects=False,
        )
        answer = Answer(response.status_code, response.headers, response.content)
        assert answer.status < 500, f"{method} {path}: {answer}"
        self.answers += 1
        self.bytes += len(answer.body)
        if side is not self.deployment:
            self._search(side, answer)
        return answer

    def lists(
        self, side: Side, operation: str, tenant: str | None = "own", key: str = "both", **fields: object
    ) -> Answer:
        """Make a call of the List API; `tenant` None leaves tenantUid out."""
        scope = {} if tenant is None else {"tenantUid": side.uid if tenant == "own" else tenant}
        headers = {"Authorization": f"apikey {side.keys[key]}", "Content-Type": "application/json"}
        return self.ask(
            side, "POST", f"{PREFIX}/{operation}", headers=headers, data=json.dumps({**fields, **scope}).encode()
        )

    def submit(
        self, side: Side, *, recipient: str, tenant: str | None = None, repeat: str | None = None, subject: str = ""
    ) -> Answer:
        """Submit a message of this tenant's own; `repeat` is an Idempotency-Key, which the other may use as well."""
        border = {
            "envelopeFrom": SENDER,
            "envelopeRecipients": [recipient],
            "remoteAddress": "192.0.2.10",
            "senderHelo": f"{side.marker}.pass.example",
        }
        record = {"borderMtaData": border, **({} if tenant is None else {"tenantUid": tenant})}
        number = next(self._numbers)
        message = (
            f"From: {side.marker} <{SENDER}>\r\nTo: <{recipient}>\r\nSubject: {subject or side.marker}\r\n"
            f"Message-ID: <{number}.{side.marker}@pass.example>\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n\r\n"
            f"See https://www.{side.marker}.example/ soon.\r\n"
        ).encode()
        headers = {"Authorization": f"Bearer {side.token}", "Content-Type": FORM}
        if repeat is not None:
            headers["Idempotency-Key"] = repeat
        answer = self.ask(side, "POST", SUBMIT, headers=headers, data=form(parameters(record), email(message)))
        if answer.status == 200:
            side.ggrids.append(str(json.loads(answer.body)["ggrid"]))
        return answer

    def read(self, side: Side, path: str, method: str = "GET") -> Answer:
        return self.ask(side, method, path, headers={"Authorization": f"Bearer {side.token}"})

    def _search(self, side: Side, answer: Answer) -> None:
        other = self.other(side)
        said = (answer.body + repr(dict(answer.headers)).encode()).lower()
        for mark in (other.marker, other.uid, self.deployment.marker, *other.ggrids):
            assert mark.encode() not in said, f"{side.name} got {mark}: {said[:500]!r}"
