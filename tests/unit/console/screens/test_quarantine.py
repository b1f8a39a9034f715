"""The page of a held message tells what is so now, also to whoever came second."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from msgspec.structs import replace

from mailwarden.console.forms import Form
from mailwarden.console.request import UserRequest
from mailwarden.console.screens.message import HeldScreen, MessagePages
from mailwarden.errors import NotReleasable
from mailwarden.history.store import HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.pipeline.previews import Previews
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine.model import HeldMessage, HeldRecipient, State
from mailwarden.quarantine.service import QuarantineService
from mailwarden.user_reports.service import ReportService


class Overtaken:
    """A quarantine in which somebody else is always a moment faster."""

    def __init__(self, message: HeldMessage) -> None:
        self.message, self.store = message, self

    async def find(self, _: Scope, __: UUID) -> HeldMessage:
        return self.message

    async def release(self, *_: object, **__: object) -> HeldMessage:
        who = tuple(replace(each, state=State.RELEASING) for each in self.message.recipients)
        self.message = replace(self.message, recipients=who)
        raise NotReleasable("No recipient waits for this message.")

    delete = release


class NoHistory:
    """A history that has deleted the message."""

    async def find(self, _: Scope, __: UUID) -> None:
        return None


@pytest.mark.parametrize("deed", ["release", "delete"])
async def test_a_rejected_user_sees_the_current_message(deed: str) -> None:
    moment = datetime.now(UTC)
    message = HeldMessage(
        uid=uuid4(), tenant=uuid4(), ggrid=uuid4(), vault=uuid4(), address=b"a", size=1, sender="eve@x.example",
        from_address="eve@x.example", from_name="", subject="", verdict=Verdict.SPAM, received=moment, expires=moment,
        missing=False, recipients=(HeldRecipient("bob@company.example", State.HELD),),
    )  # fmt: skip
    shown: dict[str, Any] = {}

    def render(_: str, values: Mapping[str, object]) -> web.Response:
        shown.update(values)
        return web.Response()

    visit = SimpleNamespace(
        variables={"uid": str(message.uid)},
        form=Form({"sure": ["1"], "confirmed": ["1"]}),
        scope=Scope.deployment(),
        actor=Actor("tests"),
        render=render,
        may=lambda _: True,
    )
    quarantine = cast("QuarantineService", Overtaken(message))
    pages = MessagePages(cast("HistoryStore", NoHistory()), load_policy(), cast("ReportService", None), quarantine)
    screen = HeldScreen(pages, quarantine, cast("Previews", None))
    await getattr(screen, deed)(cast("UserRequest", visit))
    assert (shown["waiting"], shown["releasing"]) == ((), ("bob@company.example",))
