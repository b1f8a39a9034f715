"""CspReports of what a browser's policy stopped: anybody may send them, and they fill neither memory nor log."""

import asyncio
import json
from unittest.mock import Mock

import structlog
from aiohttp import StreamReader
from aiohttp.test_utils import make_mocked_request

from mailwarden.console.templating import REPORTS, CspReports
from mailwarden.serving.http_app import Call
from mailwarden.telemetry.metrics import Metrics


async def send(reports: CspReports, directive: str) -> None:
    stream = StreamReader(Mock(), 65_536, loop=asyncio.get_running_loop())
    stream.feed_data(json.dumps({"csp-report": {"effective-directive": directive}}).encode())
    stream.feed_eof()
    request = make_mocked_request("POST", REPORTS, payload=stream)
    assert (await reports.route().handler(Call(request, "request-1", {}))).status == 204


async def test_words_that_are_no_directives_are_one_figure_and_no_line_of_the_log_has_them():
    metrics = Metrics()
    reports = CspReports(metrics)
    with structlog.testing.capture_logs() as lines:
        for number in range(50):
            await send(reports, f"{'abcdefghijklmnopqrstuvwxyz'[number % 26] * (1 + number // 26)}-src")
        await send(reports, "img-src")
        await send(reports, "img-src https://pictures.example")

    counted = [line for line in metrics.page().decode().splitlines() if line.startswith("mailwarden_csp_reports_total")]
    assert sorted(counted) == [
        'mailwarden_csp_reports_total{directive="img-src"} 2.0',
        'mailwarden_csp_reports_total{directive="other"} 50.0',
    ]
    assert {line["directive"] for line in lines} == {"img-src", "other"}
