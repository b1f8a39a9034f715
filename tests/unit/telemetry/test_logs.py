"""Log lines name their program, also if two programs share a process, and each program has its own level."""

import asyncio
import json
import logging

import pytest
import structlog

from mailwarden.telemetry.logs import get_logger, logging_as, start_logging


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
