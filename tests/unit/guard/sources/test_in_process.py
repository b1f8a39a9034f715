"""guard's source for an abby in its process: an error is counted as on its port."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from mailwarden.errors import EngineUnavailable, InternalError
from mailwarden.guard.sources.abby import RestApi
from mailwarden.guard.sources.in_process import InProcess
from mailwarden.model.envelope import Envelope
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.scan.admission import Admission
from mailwarden.serving.http_app import HttpApp
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING

ENVELOPE = Envelope("", ("b@acme.example",))
GROUPS = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), ENVELOPE.recipients),)
COUNTED = 'mailwarden_http_requests_total{route="/v1/messageQueue/submitEmail",status="%d"} 1.0'


class Failing:
    """Stands for an analysis that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def answer(self, scan, observe):
        raise self._error


@pytest.mark.parametrize(
    ("error", "expected", "status"),
    [(EngineUnavailable("down"), EngineUnavailable, 503), (RuntimeError("bug"), InternalError, 500)],
)
async def test_an_error_is_raised_and_counted(error, expected, status, tmp_path):
    admission, metrics = Admission(maximum=1, threshold=1, max_delay=0.0, max_bytes=1_000), Metrics()
    api = RestApi(admission, cast("Any", Failing(error)), tmp_path, NO_TRACING)
    guard = InProcess(api, HttpApp([], metrics), cast("Any", SimpleNamespace), lambda: b"[]")
    with pytest.raises(expected):
        await guard.scan(Scan("restApi", ENVELOPE, GROUPS, Spooled.of(b"a: b")), lambda _: None, "")
    assert COUNTED % status in metrics.page().decode()
