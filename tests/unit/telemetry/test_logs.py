"""Log lines name their program, also if two programs share a process, and each program has its own level."""

import asyncio
import json
import logging

import pytest
import structlog

from mailwarden.telemetry import logs
from mailwarden.telemetry.logs import buffered_logs, get_logger, logging_as, start_logging
from tests.waiting import eventually


@pytest.fixture
def restored():
    handlers, level, config = logging.root.handlers[:], logging.root.level, structlog.get_config()
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.configure(**config)


def written(capfdbinary):
    return [json.loads(line) for line in capfdbinary.readouterr().err.splitlines()]


def start(*arguments):
    start_logging(*arguments)
    structlog.configure(cache_logger_on_first_use=False)


async def test_a_line_names_the_program_of_its_task(restored, capfdbinary):
    start("abby", "info", {"guard": "info"})
    log = get_logger("unit")

    async def speak():
        await asyncio.sleep(0)
        log.info("in_a_task")

    with logging_as("guard"):
        task = asyncio.create_task(speak())
        log.info("inside")
    log.info("outside")
    await task
    found = {line["event"]: line["program"] for line in written(capfdbinary)}
    assert found == {"inside": "guard", "outside": "abby", "in_a_task": "guard"}


def test_each_program_has_its_own_level(restored, capfdbinary):
    start("abby", "info", {"guard": "warning"})
    log = get_logger("unit")
    for name in ("abby", "guard"):
        with logging_as(name):
            log.debug("debug")
            log.info("info")
            log.warning("warning")
            log.error("error")
    found = [(line["program"], line["event"]) for line in written(capfdbinary)]
    assert found == [
        ("abby", "info"),
        ("abby", "warning"),
        ("abby", "error"),
        ("guard", "warning"),
        ("guard", "error"),
    ]


def events(capfdbinary):
    return [line["event"] for line in written(capfdbinary)]


async def test_a_server_writes_its_lines_in_batches(restored, capfdbinary, monkeypatch):
    monkeypatch.setattr(logs, "_WRITE_AFTER", 3_600.0)
    start("abby")
    log = get_logger("unit")
    with buffered_logs():
        log.info("first")
        log.info("second")
        assert events(capfdbinary) == []
        log.warning("third")
        assert events(capfdbinary) == ["first", "second", "third"]
        log.info("last")
        assert events(capfdbinary) == []
    assert events(capfdbinary) == ["last"]
    log.info("after")
    assert events(capfdbinary) == ["after"]


async def test_no_line_waits_long(restored, capfdbinary):
    start("abby")
    with buffered_logs():
        get_logger("unit").info("alone")
        await eventually(lambda: not logs._lines._waiting)
        assert events(capfdbinary) == ["alone"]


async def test_the_number_of_waiting_lines_is_bounded(restored, capfdbinary, monkeypatch):
    monkeypatch.setattr(logs, "_WRITE_AFTER", 3_600.0)
    start("abby")
    with buffered_logs():
        for _ in range(logs._MAX_WAITING + 1):
            get_logger("unit").info("line")
        assert len(events(capfdbinary)) == logs._MAX_WAITING


async def test_a_line_of_a_thread_is_written_at_once(restored, capfdbinary):
    start("abby")
    with buffered_logs():
        await asyncio.to_thread(get_logger("unit").info, "aside")
        assert events(capfdbinary) == ["aside"]


def test_a_line_has_its_fields_and_no_local_variables(restored, capfdbinary):
    start("abby")
    structlog.contextvars.bind_contextvars(ggrid="0190")
    secret = "s3cret"
    try:
        int("broken")
    except ValueError:
        get_logger("unit").exception("failed", state=object, number=len(secret))
    structlog.contextvars.clear_contextvars()
    (line,) = written(capfdbinary)
    assert (line["level"], line["module"], line["ggrid"], line["number"]) == ("error", "unit", "0190", 6)
    assert line["exception"][0]["exc_type"] == "ValueError"
    assert line["timestamp"].endswith("Z")
    assert "s3cret" not in json.dumps(line)


def test_a_library_logs_through_the_same_lines(restored, capfdbinary):
    start("abby")
    logging.getLogger("library").warning("something %s", "odd")
    (line,) = written(capfdbinary)
    assert (line["event"], line["module"], line["level"]) == ("something odd", "library", "warning")
