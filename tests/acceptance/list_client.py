"""A plain caller of the List API: what an integrator would write."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.acceptance.client import Answer, Client

PREFIX = "/api/public/lists/v1"
JSON = "application/json"


@dataclass(frozen=True)
class ListClient:
    """`tenant` is sent as tenantUid where it is not None."""

    client: Client
    key: str | None
    tenant: str | None = None

    def using(self, key: str | None) -> "ListClient":
        return dataclasses.replace(self, key=key)

    def call(self, operation: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        """Make one call; a body that is bytes is sent as it is."""
        given = {} if self.key is None else {"Authorization": f"apikey {self.key}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": JSON, **given, **(headers or {})}
        return self.client.call("POST", f"{PREFIX}/{operation}", headers=headers, data=data)

    def add(self, name: str, *entries: object) -> Answer:
        """Add entries: a text, or a record."""
        records = [{"entry": entry} if isinstance(entry, str) else entry for entry in entries]
        return self.call("addEntries", {"listName": name, "entries": records, **self._scope})

    def delete(self, name: str, *entries: str) -> Answer:
        return self.call("deleteEntries", {"listName": name, "entries": entries, **self._scope})

    def available(self) -> Answer:
        return self.call("getLists", self._scope)

    def stream(self, name: str) -> Answer:
        return self.call("listEntries", {"listName": name, **self._scope})

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return all records of a list, having checked that none is missing."""
        answer = self.stream(name)
        assert answer.status == 200, answer.body
        records = [json.loads(line) for line in answer.body.splitlines()]
        assert len(records) == int(answer.headers["X-Entry-Count"])
        return records

    def names(self, name: str) -> list[str]:
        return [str(record["entry"]) for record in self.entries(name)]

    @property
    def _scope(self) -> dict[str, object]:
        return {} if self.tenant is None else {"tenantUid": self.tenant}


def modified(answer: Answer) -> int:
    """Return the count of a change, having checked that the answer is one and nothing else."""
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].partition(";")[0] == JSON
    assert set(answer.json) == {"modifiedEntries"}
    return int(answer.json["modifiedEntries"])
