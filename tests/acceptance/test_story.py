"""One message is checked, converted, settled and encoded once on each way, and the page about it is true."""

from collections.abc import Iterator

import pytest

from workshop.bench.compare.ways import NextHop
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.product import Product
from workshop.rig.samples import plain_message
from workshop.story.__main__ import NAME, PAGE, deliver, submit, tell, write_page
from workshop.story.runs import record, recorded_product

# What happens to one message, and the functions that do it.
ONCE = {
    "head checked": ("serving/uploads.py:check_upload_head",),
    "envelope converted": ("wire/scanning.py:envelope_in",),
    "recipients grouped": ("access/tenants.py:group", "access/tenants.py:grouped"),
    "scan built": ("abby/submit.py:scan_of", "guard/sources/smtp.py:Smtp._scan_of"),
    "settled": ("scan/shared_answer.py:settle",),
    "answer encoded": ("wire/scanning.py:encode_result",),
    "row encoded": ("journal/records.py:encode",),
}


@pytest.fixture(params=[False, True], ids=["two processes", "one process"])
def running(request, engines: Engines, tmp_path) -> Iterator[tuple[Product, int]]:
    name, port = f"story_{request.param}".lower(), free_port()
    with NextHop() as next_hop:
        smtp = {"listen": {"port": port}, "nextHop": f"127.0.0.1:{next_hop.port}"}
        guards = ({"scanSources": {"smtp": smtp}},)
        with recorded_product(tmp_path, engines, name, guards=guards, one_process=request.param) as product:
            yield product, port
    engines.postgresql.drop_database(name)


def test_every_step_is_done_once(running):
    product, port = running
    names = [call.name for call in record(product, lambda: submit(product))]
    by_https = {what: sum(names.count(name) for name in done) for what, done in ONCE.items()}
    assert by_https == dict.fromkeys(ONCE, 1) | {"recipients grouped": 2}  # `group` asks `grouped`
    names = [call.name for call in record(product, lambda: deliver(port, plain_message()))]
    by_smtp = {what: sum(names.count(name) for name in done) for what, done in ONCE.items()}
    # SMTP has no head of an upload, makes its own envelope, and replies with a line in place of the six fields.
    made = ("head checked", "envelope converted", "answer encoded")
    assert by_smtp == dict.fromkeys(ONCE, 1) | dict.fromkeys(made, 0)


def test_the_page_has_the_functions_of_a_run(engines: Engines, tmp_path):
    """The order of the first calls differs where parts run side by side."""
    try:
        now = write_page(tell(engines, tmp_path))
    finally:
        engines.postgresql.drop_database(NAME)
    assert sorted(now.splitlines()) == sorted(PAGE.read_text("utf-8").splitlines()), "run `make story`"
