"""A support bundle has no secret, address, subject or host name, whatever its sources have."""

import json

import pytest

from mailwarden.cli.support_bundle import REMOVED, mask, shown_log_line, shown_metrics, shown_settings
from mailwarden.settings.effective import DEFAULT, Setting

PLANTED = (
    "ada@north.example",
    "mail.north.example",
    "192.0.2.7",
    "2001:db8::7",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "c2VjcmV0c2VjcmV0c2VjcmV0",
    "postgresql://mailwarden:hunter2@10.1.2.3/mailwarden",
    "/etc/mailwarden/secrets/pepper",
    "4929123456781234",
)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_sentence_loses_every_value(planted: str) -> None:
    for text in (planted, f"`{planted}`", f"({planted})", f"guard {planted}: no answer", f"{planted},"):
        assert planted not in mask(text)
    assert mask(f"rspamd at {planted} did not answer within 5 s") == "rspamd at … did not answer within 5 s"


@pytest.mark.parametrize("planted", PLANTED)
def test_a_log_line_loses_every_text(planted: str) -> None:
    entry = {
        "event": "message_scanned",
        "level": "info",
        "timestamp": "2026-11-16T13:34:54.416179Z",
        "module": "guard.app",
        "subject": f"Your invoice {planted}",
        "sender": planted,
        "milliseconds": 12.5,
        planted: 1,
        "nested": {"recipient": planted},
        "exception": [
            {
                "exc_type": "ValueError",
                "exc_value": planted,
                "frames": [{"filename": "/usr/lib/mailwarden/guard/app.py", "lineno": 7}, {"filename": planted}],
            }
        ],
    }
    line = shown_log_line(json.dumps(entry))
    assert line is not None
    assert planted not in line
    assert "invoice" not in line
    assert json.loads(line) == {
        "event": "message_scanned",
        "level": "info",
        "timestamp": "2026-11-16T13:34:54.416179Z",
        "module": "guard.app",
        "milliseconds": 12.5,
        "exception": [{"type": "ValueError", "places": ["guard/app.py:7"]}],
    }
    assert shown_log_line(planted) is None
    assert shown_log_line(json.dumps({"event": planted})) is None


@pytest.mark.parametrize("planted", PLANTED[:-1])
def test_settings_lose_texts_and_keep_numbers_and_choices(planted: str) -> None:
    shown = shown_settings(
        [
            Setting("database.url", planted, "guard.yml:3"),
            Setting(f"engines.{planted}.address", planted, "guard.yml:9"),
            Setting("mainWorkerCount", "20", DEFAULT),
            Setting("onEngineFailure", "tempfail", "guard.yml:4"),
        ]
    )
    assert planted not in json.dumps(shown)
    assert [each["value"] for each in shown] == [REMOVED, REMOVED, "20", "tempfail"]
    assert [each["from"] for each in shown] == ["file", "file", "default", "file"]


@pytest.mark.parametrize("planted", PLANTED)
def test_metrics_lose_labels_that_may_name_a_host(planted: str) -> None:
    page = (
        f'# HELP mailwarden_engine_up {planted}\nmailwarden_engine_up{{engine="rspamd"}} 1.0\n'
        f'mailwarden_guard_up{{guard="{planted}"}} 1.0\nmailwarden_engine_up{{engine="{planted}@"}} 0.0\n'
        f"{planted} 1\n"
    )
    lines = list(shown_metrics(page))
    assert planted not in "\n".join(lines)
    assert lines[:2] == ['mailwarden_engine_up{engine="rspamd"} 1.0', f'mailwarden_guard_up{{guard="{REMOVED}"}} 1.0']
