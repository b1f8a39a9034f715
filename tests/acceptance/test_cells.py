"""Two cells of one fleet: messages and calls reach the cell of their tenant, and a dead cell affects no other."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.cli.doctor.cells import check_cells
from mailwarden.cli.doctor.report import Host
from mailwarden.settings.reader import read
from rig.cells import Cell, Fleet, install_fleet
from rig.engines import Engines
from rig.ports import free_port
from rig.samples import spam_message
from tests.acceptance.client import Answer, Client, envelope
from tests.acceptance.list_client import ListClient
from tests.acceptance.smtp import Sink, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ANN, BEN = "ann@alpha.example", "ben@beta.example"


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(
    engines: Engines, database_template: str, sink: Sink, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Return the cell `a` with the tenant alpha, and the cell `b` with the tenant beta."""
    installed = install_fleet(
        tmp_path_factory.mktemp("fleet"),
        engines,
        database_template,
        {"a": ["alpha"], "b": ["beta"]},
        next_hop=sink.port,
        smtp_ports={"a": free_port(), "b": free_port()},
    )
    with installed as running:
        running.start()
        assert wait_until(lambda: lists(running, "a", "b", "beta").available().status == 200)
        assert wait_until(lambda: lists(running, "b", "a", "alpha").available().status == 200)
        yield running


def client(cell: Cell, token: str | None = None) -> Client:
    return Client(cell.product.url, cell.product.ca, token or cell.product.token)


def lists(fleet: Fleet, at: str, home: str, tenant: str) -> ListClient:
    """Return a client of the abby of one cell with the key of a tenant of another."""
    cell = fleet.cells[home]
    return ListClient(client(fleet.cells[at]).using(None), cell.keys[tenant], cell.tenants[tenant])


def submit(fleet: Fleet, at: str, message: bytes, *recipients: str) -> Answer:
    return client(fleet.cells[at]).submit(message, envelope(envelopeRecipients=list(recipients)))


def is_stored(fleet: Fleet, cell: str, ggrid: str) -> bool:
    return client(fleet.cells[cell]).call("GET", f"/v1/messages/{ggrid}").status == 200


def test_abby_has_the_metrics_of_cells(fleet: Fleet, plain: bytes) -> None:
    assert submit(fleet, "a", plain, BEN).status == 200
    page = client(fleet.cells["a"]).call("GET", "/metrics").body.decode()
    for name in ("requests_total", "up", "directory_age_seconds", "conflicts", "moves_incomplete"):
        assert f"# TYPE mailwarden_cell_{name} " in page


def test_a_message_is_scanned_in_the_cell_of_its_tenant(fleet: Fleet, plain: bytes) -> None:
    found = submit(fleet, "a", plain, BEN).result
    assert found["verdict"] == "clean"
    assert wait_until(lambda: is_stored(fleet, "b", found["ggrid"]))
    assert not is_stored(fleet, "a", found["ggrid"])


def test_recipients_of_two_cells_get_one_answer_and_a_row_each(fleet: Fleet, plain: bytes) -> None:
    found = submit(fleet, "b", plain, ANN, BEN).result
    assert "policy.mixed-recipients" in found["tags"]
    for cell, recipient in (("a", ANN), ("b", BEN)):
        assert wait_until(lambda cell=cell: is_stored(fleet, cell, found["ggrid"]))
        stored = client(fleet.cells[cell]).explained(found["ggrid"])
        assert stored["envelope"]["envelopeRecipients"] == [recipient]


def test_the_strictest_cell_decides(fleet: Fleet, plain: bytes) -> None:
    own = lists(fleet, "b", "b", "beta")
    assert own.add("sender-block", "alice@pass.example").status == 200
    try:
        assert wait_until(lambda: submit(fleet, "b", plain, BEN).result["decision"] != "deliver")
        blocked = submit(fleet, "b", plain, BEN).result["decision"]
        both = submit(fleet, "a", plain, ANN, BEN).result["decision"]
        assert both == ("quarantine" if blocked in ("drop", "bounce") else blocked)
        assert submit(fleet, "a", plain, ANN).result["decision"] == "deliver", "the list of beta applies to beta alone"
    finally:
        assert own.delete("sender-block", "alice@pass.example").status == 200


def test_calls_of_a_tenants_key_reach_its_cell(fleet: Fleet) -> None:
    through, entry = lists(fleet, "a", "b", "beta"), f"{uuid4().hex}.example"
    assert through.add("url-allow", entry).status == 200
    assert entry in lists(fleet, "b", "b", "beta").names("url-allow")
    assert entry in through.names("url-allow"), "a stream passes, too"
    headers = {"Authorization": f"apikey {fleet.cells['b'].keys['beta']}"}
    assert client(fleet.cells["a"]).using(None).call("GET", "/v1/messages", headers=headers).status == 200
    assert client(fleet.cells["a"]).using(None).call("GET", "/v1/quarantine", headers=headers).status == 200


def test_a_key_sees_nothing_of_another_tenant_through_forwarding(fleet: Fleet) -> None:
    foreign = ListClient(
        client(fleet.cells["a"]).using(None), fleet.cells["b"].keys["beta"], fleet.cells["a"].tenants["alpha"]
    )
    assert foreign.stream("url-allow").error == "tenant_forbidden"
    headers = {"Authorization": f"apikey {fleet.cells['b'].keys['beta']}"}
    path = f"/v1/messages?tenantUid={fleet.cells['a'].tenants['alpha']}"
    assert client(fleet.cells["a"]).using(None).call("GET", path, headers=headers).status == 403


@pytest.mark.contract("5 tenant_in_other_cell")
def test_a_deployment_credential_is_told_the_address_of_the_other_cell(fleet: Fleet) -> None:
    beta = fleet.cells["b"].tenants["beta"]
    own = ListClient(client(fleet.cells["a"]).using(None), fleet.cells["a"].keys[""], beta)
    answers = [
        own.add("url-allow", "one.example"),
        client(fleet.cells["a"]).call("GET", f"/v1/messages?tenantUid={beta}"),
        client(fleet.cells["a"]).call("GET", f"/v1/reports?tenantUid={beta}"),
    ]
    assert [(answer.status, answer.error) for answer in answers] == [(421, "tenant_in_other_cell")] * 3
    assert fleet.cells["b"].product.url in answers[0].json["message"]


async def test_operators_see_the_directory_and_the_other_cells(fleet: Fleet) -> None:
    shown = fleet.cells["a"].run("cells", "show")
    assert f"{fleet.cells['b'].tenants['beta']}  b     0        beta.example" in shown
    config = read(fleet.cells["a"].config / PATH, AbbyConfig)
    lines = [line async for line in check_cells(Host(fleet.cells["a"].config, None, config))]
    assert [(line.state, line.name) for line in lines] == [("ok", "directory of cells"), ("ok", "cell b")]


def test_a_deployment_key_is_valid_in_its_own_cell_alone(fleet: Fleet) -> None:
    foreign = ListClient(client(fleet.cells["a"]).using(None), fleet.cells["b"].keys[""])
    assert foreign.available().status == 401


def test_only_a_cell_with_the_secret_may_forward(fleet: Fleet, plain: bytes) -> None:
    cell = client(fleet.cells["b"]).using(None)
    secret = (fleet.cells["b"].config / "secrets" / "cell-a").read_text("ascii")

    def forwarded(name: str, given: str, recipient: str) -> Answer:
        headers = {"Mailwarden-Cell": name, "Mailwarden-Cell-Secret": given}
        return cell.submit(plain, envelope(envelopeRecipients=[recipient]), headers=headers)

    assert forwarded("a", "0" * 64, BEN).status == 401
    assert forwarded("c", secret, BEN).status == 401
    assert forwarded("a", secret, BEN).status == 200
    assert forwarded("a", secret, ANN).error == "tenant_in_other_cell", "it is not forwarded a second time"
    assert forwarded("a", secret, "nobody@other.example").error == "tenant_in_other_cell"
    headers = {"Mailwarden-Cell": "a", "Mailwarden-Cell-Secret": secret}
    assert cell.call("GET", "/v1/messages", headers=headers).status == 401, "a cell may submit, and nothing else"


def test_the_time_that_the_other_cell_waits_shortens_a_scan_and_never_lengthens_it(fleet: Fleet, plain: bytes) -> None:
    secret = (fleet.cells["a"].product.abby.folder / "secrets" / "cell-b").read_text("ascii")
    peer = {"Mailwarden-Cell": "a", "Mailwarden-Cell-Secret": secret}
    for headers, status in (
        ({**peer, "Mailwarden-Deadline-Ms": "1"}, 504),
        ({**peer, "Mailwarden-Deadline-Ms": "60000"}, 200),
        ({**peer, "Mailwarden-Deadline-Ms": "-1"}, 400),
        ({**peer, "Mailwarden-Deadline-Ms": "9" * 4000}, 400),
        (peer, 200),
    ):
        found = client(fleet.cells["b"]).using(None).submit(plain, envelope(envelopeRecipients=[BEN]), headers=headers)
        assert found.status == status, (headers, found.body)
    other = {"Mailwarden-Deadline-Ms": "1"}
    found = client(fleet.cells["b"]).submit(plain, envelope(envelopeRecipients=[BEN]), headers=other)
    assert found.status == 200, "another caller's header has no effect"


def test_mail_for_an_own_tenant_passes_by_smtp(fleet: Fleet, sink: Sink, plain: bytes) -> None:
    assert send(fleet.cells["a"].smtp_port, plain, ANN, forward=True).startswith("250")
    (delivered,) = sink.take()
    assert delivered.recipients == (ANN,)


@pytest.mark.contract("5 cell_unreachable")
def test_a_dead_cell_affects_no_other(fleet: Fleet, plain: bytes) -> None:
    """The cell that lives uses its copy of the directory, also after a restart, while the database is down."""
    fleet.cells["b"].product.stop()
    abby = fleet.cells["a"].product.abby
    try:
        refused = submit(fleet, "a", plain, BEN)
        assert (refused.status, refused.error) == (503, "cell_unreachable")
        assert "`b`" in refused.json["message"]
        assert "Retry-After" in refused.headers
        assert submit(fleet, "a", plain, ANN, BEN).status == 503, "no part of a message is lost in silence"
        assert all(submit(fleet, "a", plain, ANN).status == 200 for _ in range(5))

        fleet.cells["a"].product.stop()
        abby.configure({"cells": {"directory": {"url": "postgresql://nobody@127.0.0.1:1/none"}}})
        fleet.cells["a"].product.start()
        assert submit(fleet, "a", plain, ANN).status == 200
        assert submit(fleet, "a", plain, BEN).error == "cell_unreachable", "never scanned by another tenant's policy"
    finally:
        fleet.cells["a"].product.stop()
        abby.configure({"cells": {"directory": {"url": fleet.directory}}})
        fleet.start()
    assert wait_until(lambda: submit(fleet, "a", plain, BEN).status == 200)


def test_a_moved_tenant_is_served_by_its_new_cell_and_reached_through_the_old(
    fleet: Fleet, engines: Engines, sink: Sink, plain: bytes
) -> None:
    a, b = fleet.cells["a"], fleet.cells["b"]
    own = lists(fleet, "a", "a", "alpha")
    assert own.add("url-allow", "kept.example").status == 200
    spam = engines.dns.sign(spam_message(), "pass.example")
    assert send(a.smtp_port, spam, ANN, forward=True).startswith("250")
    headers = {"Authorization": f"apikey {a.keys['alpha']}"}

    def held(cell: Cell) -> list[dict[str, str]]:
        answer = client(cell).using(None).call("GET", "/v1/quarantine", headers=headers)
        return list(answer.json["messages"]) if answer.status == 200 else []

    assert wait_until(lambda: len(held(a)) == 1)
    sink.clear()
    words = ("tenants", "move", "alpha", "--to", "b", "--target", str(b.config))
    statuses = set()
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(a.run, *words)
        while not moving.done():
            statuses |= {lists(fleet, at, "a", "alpha").available().status for at in ("a", "b")}
            time.sleep(0.05)
    assert "changes paused for" in moving.result()
    assert statuses <= {200, 421, 503}, "a key is never unknown, at neither cell"

    def is_added() -> bool:
        statuses.add(status := own.add("url-allow", "later.example").status)
        return status == 200

    assert wait_until(is_added)
    assert 401 not in statuses
    assert wait_until(lambda: send(a.smtp_port, plain, ANN, forward=True).startswith("451")), "not the default tenant's"
    found = submit(fleet, "a", plain, ANN).result
    assert wait_until(lambda: is_stored(fleet, "b", found["ggrid"])), "forwarded to the new cell"
    assert {"kept.example", "later.example"} <= set(lists(fleet, "b", "a", "alpha").names("url-allow"))
    sink.clear()
    assert send(b.smtp_port, plain, ANN, forward=True).startswith("250")
    sink.take()

    (message,) = held(b)
    assert held(a) == held(b), "the old cell forwards the call"
    path = f"/v1/quarantine/{message['uid']}/release"
    order = {**headers, "Content-Type": "application/json"}
    assert client(a).using(None).call("POST", path, headers=order, data=b"{}").status == 202
    (delivered,) = sink.take()
    assert delivered.recipients == (ANN,)
    assert "finished" in a.run(*words, "--finish")
