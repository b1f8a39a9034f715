"""Retention goes on after a step that fails."""

from datetime import UTC, date, datetime
from typing import cast

from mailwarden.errors import StorageUnavailable
from mailwarden.history.maintenance import Retention
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope


class Campaigns:
    async def delete_unseen(self, scope: Scope, before: date) -> int:
        raise StorageUnavailable("down")


class Senders:
    def __init__(self) -> None:
        self.called: list[str] = []

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        self.called.append("senders")
        raise RuntimeError("a bug")

    async def delete_domains(self, scope: Scope, before: date, before_of_one: date) -> int:
        self.called.append("domains")
        return 1

    async def delete_messages(self, scope: Scope, before: date) -> int:
        self.called.append("threads")
        return 0


class Store:
    def __init__(self) -> None:
        self.senders, self.campaigns = Senders(), Campaigns()

    async def now(self, scope: Scope) -> datetime:
        return datetime.now(UTC)

    async def delete_days(self, scope: Scope, before: date) -> int:
        raise StorageUnavailable("down")

    async def tenant_retention(self, scope: Scope) -> dict[object, int]:
        raise TimeoutError


async def test_a_step_that_fails_does_not_keep_the_others_from_running() -> None:
    store = Store()
    await Retention(cast("HistoryStore", store), 30)._run()
    assert store.senders.called == ["senders", "domains", "threads"]
