"""Engines that answer cut, empty, endless or unfinished results: none of them passes for an analysis."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import GUARD
from tests.faults.engine_proxy import (
    EngineProxy,
    Tamper,
    answer_byte_by_byte,
    answer_garbage,
    answer_half,
    close_at_once,
    pass_on,
    stay_silent,
)
from tests.faults.invariants import check_nothing_spooled
from tests.faults.load import caller_of, explain
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, Product, start_product
from workshop.rig.samples import malware_message, plain_message, spam_message

pytestmark = pytest.mark.slow

MEBIBYTE = b" " * (1 << 20)
DEADLINE = 5_000  # a silent engine is waited for so long, and a busy one needs no longer


@dataclass(slots=True)
class ProxiedProduct:
    """A product with a proxy in front of each engine."""

    product: Product
    rspamd: EngineProxy
    clamd: EngineProxy


@pytest.fixture(scope="module")
def proxied(
    engines: Engines, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxiedProduct]:
    url = engines.postgresql.create_database("lying", template=database_template)
    sockets = tmp_path_factory.mktemp("m")
    with ExitStack() as stack:
        stack.callback(engines.postgresql.drop_database, "lying")
        rspamd = stack.enter_context(EngineProxy(sockets / "r", Path(engines.rspamd.socket)))
        clamd = stack.enter_context(EngineProxy(sockets / "c", Path(engines.clamd.socket)))
        addresses: Overrides = {
            "rspamd": {"address": rspamd.address, "timeout": DEADLINE},
            "clamav": {"address": clamd.address, "timeout": DEADLINE},
        }
        product = start_product(
            tmp_path_factory.mktemp("lying"), engines, url, guards=[{**GUARD, "engines": addresses}]
        )
        yield ProxiedProduct(stack.enter_context(product), rspamd, clamd)


@pytest.fixture(autouse=True)
def restored_answers(proxied: ProxiedProduct) -> Iterator[None]:
    yield
    proxied.rspamd.tamper = proxied.clamd.tamper = pass_on


def rewritten(answer: bytes, **changes: object) -> bytes:
    """Return Rspamd's answer with other members, and a Content-Length that fits."""
    head, _, body = answer.partition(b"\r\n\r\n")
    changed = json.dumps({**json.loads(body), **changes}).encode("utf-8")
    head = re.sub(rb"(?i)content-length: *\d+", b"Content-Length: %d" % len(changed), head)
    return head + b"\r\n\r\n" + changed


def without_authentication(answer: bytes, connection: socket.socket) -> None:
    symbols = json.loads(answer.partition(b"\r\n\r\n")[2])["symbols"]
    kept = {name: symbol for name, symbol in symbols.items() if not name.startswith(("R_SPF", "R_DKIM", "DMARC"))}
    connection.sendall(rewritten(answer, symbols=kept))


def without_any_symbol(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(rewritten(answer, symbols={}))


def soft_reject(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(rewritten(answer, action="soft reject"))


def skipped(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(rewritten(answer, is_skipped=True))


def server_error(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 500 Internal error\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")


def empty_success(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")


def no_number(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(rewritten(answer, score="0.0"))


def cut_without_length(answer: bytes, connection: socket.socket) -> None:
    """Cut the answer where its length is not told, so that only its JSON shows the cut."""
    head, _, body = answer.partition(b"\r\n\r\n")
    head = re.sub(rb"(?i)content-length: *\d+\r\n", b"", head)
    connection.sendall(head + b"\r\n\r\n" + body[: len(body) // 2])


def hundred_megabytes(answer: bytes, connection: socket.socket) -> None:
    head, _, _ = answer.partition(b"\r\n\r\n")
    head = re.sub(rb"(?i)content-length: *\d+", b"Content-Length: %d" % (100 * len(MEBIBYTE)), head)
    connection.sendall(head + b"\r\n\r\n")
    for _ in range(100):
        connection.sendall(MEBIBYTE)


RSPAMD_LIES = (
    without_authentication,
    without_any_symbol,
    soft_reject,
    skipped,
    server_error,
    empty_success,
    no_number,
    cut_without_length,
    hundred_megabytes,
    answer_half,
    answer_garbage,
    answer_byte_by_byte,
    close_at_once,
    stay_silent,
)


def clamd_error(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"stream: Can't allocate memory ERROR\0")


def clamd_size_exceeded(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"INSTREAM size limit exceeded. ERROR\0")


def clamd_unknown(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"UNKNOWN COMMAND\0")


def clamd_cut(_: bytes, connection: socket.socket) -> None:
    connection.sendall(b"stream: O")


def clamd_bare_word(_: bytes, connection: socket.socket) -> None:
    """Answer OK for nothing in particular: not the answer to a stream."""
    connection.sendall(b"OK\0")


def clamd_hundred_megabytes(_: bytes, connection: socket.socket) -> None:
    for _number in range(100):
        connection.sendall(MEBIBYTE)


CLAMD_LIES = (
    clamd_error,
    clamd_size_exceeded,
    clamd_unknown,
    clamd_cut,
    clamd_bare_word,
    clamd_hundred_megabytes,
    answer_garbage,
    answer_byte_by_byte,
    close_at_once,
    stay_silent,
)


async def submit(proxied: ProxiedProduct, message: bytes) -> tuple[str, str, str]:
    async with caller_of(proxied.product) as caller:
        answer = await caller.submit(message)
    assert answer.status == 200, answer
    return str(answer.record["verdict"]), str(answer.record["decision"]), str(answer.record["ggrid"])


async def failed_analyzers(proxied: ProxiedProduct, ggrid: str) -> set[str]:
    engines = (await explain(proxied.product, [ggrid]))[ggrid]["engines"]
    assert isinstance(engines, list)
    return {engine["analyzer"] for engine in engines if engine["status"] == "failed"}


async def test_an_unchanged_answer_gives_the_usual_verdicts(proxied: ProxiedProduct) -> None:
    for message, expected in (
        (plain_message(), ("clean", "deliver")),
        (malware_message(), ("malware", "quarantine")),
        (spam_message(), ("spam", "quarantine")),
    ):
        verdict, decision, _ = await submit(proxied, message)
        assert (verdict, decision) == expected


@pytest.mark.contract("2 undecided")
@pytest.mark.parametrize("lie", RSPAMD_LIES, ids=lambda lie: lie.__name__)
async def test_an_unfinished_answer_of_rspamd_is_no_analysis(proxied: ProxiedProduct, lie: Tamper) -> None:
    before = proxied.rspamd.tampered
    proxied.rspamd.tamper = lie
    verdict, decision, ggrid = await submit(proxied, plain_message())
    assert (verdict, decision) == ("unknown", "undecided")
    assert proxied.rspamd.tampered == before + 1
    assert await failed_analyzers(proxied, ggrid) == {"rspamd"}
    verdict, decision, _ = await submit(proxied, malware_message())
    assert (verdict, decision) == ("malware", "quarantine")
    proxied.rspamd.tamper = pass_on
    verdict, decision, _ = await submit(proxied, plain_message())
    assert (verdict, decision) == ("clean", "deliver")
    await check_nothing_spooled(proxied.product)


@pytest.mark.contract("2 undecided")
@pytest.mark.parametrize("lie", CLAMD_LIES, ids=lambda lie: lie.__name__)
async def test_an_unfinished_answer_of_clamd_is_no_analysis(proxied: ProxiedProduct, lie: Tamper) -> None:
    before = proxied.clamd.tampered
    proxied.clamd.tamper = lie
    verdict, decision, ggrid = await submit(proxied, plain_message())
    assert (verdict, decision) == ("unknown", "undecided")
    assert proxied.clamd.tampered == before + 1
    assert await failed_analyzers(proxied, ggrid) == {"clamav"}
    _, decision, _ = await submit(proxied, malware_message())
    assert decision in {"undecided", "quarantine"}
    verdict, decision, _ = await submit(proxied, spam_message())
    assert (verdict, decision) == ("spam", "quarantine")
    proxied.clamd.tamper = pass_on
    verdict, decision, _ = await submit(proxied, plain_message())
    assert (verdict, decision) == ("clean", "deliver")
    await check_nothing_spooled(proxied.product)
