"""The HTTP scan source for existing installations: Rspamd's `/checkv2`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from backports import zstd

from mailwarden.crypto.keyring import read_ring
from mailwarden.quarantine.result_headers import ResultSeal
from tests.acceptance.client import envelope
from tests.acceptance.deployment import in_processing, run_deployment, submitting
from tests.acceptance.http_source_clients import (
    PASSWORD,
    HttpSources,
    ask,
    ggrid_of_check,
    rspamc,
)
from tests.acceptance.pausable_clamd import PausableClamd
from tests.waiting import wait_until
from workshop.rig.ports import free_port
from workshop.rig.samples import malware_message, plain_message, spam_message

pytestmark = pytest.mark.slow

PLACES = {"mainWorkerCount": 2, "maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}
SAMPLES = {
    "plain": plain_message,
    "spam": spam_message,
    "malware": malware_message,
    "newsletter": lambda: b"Precedence: bulk\r\nList-Unsubscribe: <https://pass.example/u>\r\n" + plain_message(),
}
ZSTD = [("Compression", "zstd")]
ALIKE = ("verdict", "decision", "tags")


@pytest.fixture(scope="module")
def http_sources(
    engines, deployment_template, tmp_path_factory, pausable_clamd: PausableClamd
) -> Iterator[HttpSources]:
    rspamd = free_port()
    guard = {
        **PLACES,
        "engines": {"clamav": {"address": pausable_clamd.address}},
        "scanSources": {
            "restApi": {},
            "rspamdApi": {"listen": {"port": rspamd}, "password": PASSWORD, "bodyTimeout": 5_000},
        },
    }
    with run_deployment(
        engines, deployment_template, tmp_path_factory.mktemp("http_sources"), guards=(guard,)
    ) as deployment:
        yield HttpSources(deployment, rspamd)


@pytest.mark.contract("6 drop-in sources")
@pytest.mark.parametrize("name", SAMPLES)
def test_every_source_gives_the_same_verdict(http_sources: HttpSources, engines, name):
    message = engines.dns.sign(SAMPLES[name](), "pass.example")

    by_api = http_sources.deployment.client().submit(message, envelope()).result
    checked = http_sources.check(message).json

    known = http_sources.explain(ggrid_of_check(checked))
    assert {field: known[field] for field in ALIKE} == {field: by_api[field] for field in ALIKE}
    assert known["source"] == "rspamdApi"
    assert known["envelope"] == envelope()["borderMtaData"]
    delivered = by_api["decision"] == "deliver"
    assert checked["action"] == ("no action" if delivered else "reject")
    assert (checked["score"] >= checked["required_score"]) is not delivered


def test_the_answer_has_the_fields_of_the_real_rspamd_with_their_types(http_sources: HttpSources, engines, plain):
    theirs = engines.rspamd.scan(plain, {"From": "alice@pass.example", "Rcpt": "bob@company.example"})
    ours = http_sources.check(plain).json

    missing = {name for name in theirs if name not in ours}
    assert missing == set(), (missing, theirs)
    for name, value in theirs.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert isinstance(ours[name], (int, float) if number else type(value)), name
    (known, *_), shown = theirs["symbols"].values(), ours["symbols"]["MW_VERDICT_CLEAN"]
    assert set(known) - {"description", "options"} <= set(shown)
    assert theirs["message-id"] == ours["message-id"]


@pytest.mark.parametrize(("name", "action"), [("plain", "no action"), ("spam", "reject"), ("malware", "reject")])
def test_rspamc_accepts_the_answer(http_sources: HttpSources, engines, tmp_path, name, action):
    file = tmp_path / "message.eml"
    file.write_bytes(engines.dns.sign(SAMPLES[name](), "pass.example"))
    given = ("-F", "alice@pass.example", "-r", "bob@company.example", "-i", "192.0.2.10", "--helo", "mail.pass.example")

    done = rspamc(http_sources.rspamd_port, file, "-P", PASSWORD, *given)

    assert done.returncode == 0, done.stderr
    assert f"Action: {action}" in done.stdout
    assert "Symbol: MW_VERDICT_" in done.stdout
    score = float(done.stdout.partition("Score: ")[2].split()[0])
    assert (score >= 15.0) is (action == "reject")
    as_json = json.loads(rspamc(http_sources.rspamd_port, file, "-P", PASSWORD, "-j", *given).stdout)
    assert as_json["action"] == action


def test_fields_are_signed_and_forged_ones_taken_out(http_sources: HttpSources, plain):
    seal = ResultSeal(read_ring((http_sources.deployment.product.abby.folder / "secrets" / "contents"), "contents.key"))
    forged = b"X-Mailwarden-Verdict: clean\r\n" + plain

    checked = http_sources.check(forged).json["milter"]
    message = plain
    for name, added in checked["add_headers"].items():
        message = f"{name}: {added['value']}\r\n".encode() + message
    assert "X-Mailwarden-Verdict" in checked["remove_headers"]
    assert seal.read(message) is not None


def test_several_tenants_are_judged_apart_and_the_strictest_wins(http_sources: HttpSources, plain):
    assert (
        http_sources.deployment.lists(tenant="club").add("sender-block", {"entry": "alice@pass.example"}).status == 200
    )
    both = ("bob@company.example", "kim@club.example")
    try:
        assert wait_until(lambda: http_sources.check(plain, "kim@club.example").json["action"] == "reject")
        assert http_sources.check(plain, "bob@company.example").json["action"] == "no action"
        checked = http_sources.check(plain, *both).json
        assert checked["action"] == "reject"
        assert "SENDER_BLOCK" not in json.dumps(checked).upper().replace("-", "_"), "recipients of both can read it"
        known = http_sources.explain(ggrid_of_check(checked))
        assert known["tenantUid"] == http_sources.deployment.tenants["club"]
        assert known["envelope"]["envelopeRecipients"] == ["kim@club.example"], "nobody is told of the others"
        assert http_sources.check(plain, "<bob@company.example>, <kim@club.example>").json["action"] == "reject"
    finally:
        http_sources.deployment.lists(tenant="club").delete("sender-block", "alice@pass.example")


def test_a_blocked_address_bounces_in_the_session(http_sources: HttpSources, plain):
    lists = http_sources.deployment.lists()
    assert lists.add("ip-block", {"entry": "192.0.2.66"}).status == 200
    try:
        blocked = [("IP", "192.0.2.66")]
        assert wait_until(lambda: http_sources.check(plain, headers=blocked).json["action"] == "reject")
        checked = http_sources.check(plain, headers=blocked).json
        assert http_sources.explain(ggrid_of_check(checked))["decision"] == "bounce"
        assert checked["messages"]["smtp_message"]
    finally:
        lists.delete("ip-block", "192.0.2.66")


@pytest.mark.contract("3 admission drop-in sources")
def test_when_full_the_client_gets_a_temporary_failure(http_sources: HttpSources, plain, pausable_clamd: PausableClamd):
    pausable_clamd.pause()
    with submitting(http_sources.deployment, plain, 2, pausable_clamd) as calls:
        assert wait_until(lambda: in_processing(http_sources.deployment, 0) == 2)
        checked = http_sources.check(plain)
    assert [call.result().status for call in calls] == [200, 200]
    assert (checked.status, checked.json["action"]) == (200, "soft reject")
    assert http_sources.check(plain).json["action"] == "no action"


@pytest.mark.parametrize(
    ("headers", "message", "status"),
    [
        ([("IP", "nowhere")], b"x", 400),
        ([("IP", "fe80::1%eth0")], b"x", 400),
        ([("IP", "[::1:25")], b"x", 400),
        ([("From", "a\x7fb@c.example")], b"x", 400),
        ([("From", '"a@b.example')], b"x", 400),
        ([("Helo", "x" * 2_000)], b"x", 400),
        ([("Helo", "x" * 9_000)], b"x", 400),
        ([("Rcpt", f"r{number}@company.example") for number in range(1_001)], b"x", 400),
        ([("Rcpt", f"r{number}@company.example") for number in range(3_000)], b"x", 400),
        ([("X-Long", "x" * 8_000)] * 40, b"x", 400),
        ([("File", "/etc/passwd")], b"x", 400),
        ([("Shm", "/rspamd"), ("Shm-Length", "10")], b"", 400),
        ([("Content-Encoding", "gzip")], b"x", 415),
        ([("Compression", "zstd"), ("Content-Encoding", "gzip")], zstd.compress(b"x"), 415),
        (ZSTD, b"x", 400),
        (ZSTD, b"", 400),
        (ZSTD, zstd.compress(plain_message())[:-5], 400),
        (ZSTD, zstd.compress(plain_message()) + b"x", 400),
        (ZSTD, zstd.compress(bytes(52_428_801)), 413),
        (ZSTD, zstd.compress(bytes(20_000_000), options={zstd.CompressionParameter.window_log: 24}), 400),
        ([], b"", 400),
    ],
)
def test_hostile_checks_are_rejected_and_never_clean(http_sources: HttpSources, headers, message, status):
    reply = http_sources.check(message, headers=headers)
    assert reply.status == status
    assert reply.json["action"] == "soft reject"


@pytest.mark.parametrize("name", [("Compression",), ("Content-Encoding",), ("Compression", "Content-Encoding")])
def test_a_compressed_message_is_judged_like_the_message_itself(http_sources: HttpSources, engines, name):
    message = engines.dns.sign(malware_message(), "pass.example") + bytes(3_000_000)
    plain, packed = (
        http_sources.explain(ggrid_of_check(http_sources.check(body, headers=headers).json))
        for body, headers in ((message, []), (zstd.compress(message), [(each, "zstd") for each in name]))
    )
    assert {field: packed[field] for field in ALIKE} == {field: plain[field] for field in ALIKE}
    assert http_sources.check(message).json["action"] == "reject"


@pytest.mark.parametrize("given", ["192.0.2.10:50150", "[2001:db8::1]:25", "[2001:db8::1]", "2001:db8::1"])
def test_an_address_may_have_a_port_as_rspamds_milter_writes_it(http_sources: HttpSources, plain, given):
    known = http_sources.explain(ggrid_of_check(http_sources.check(plain, headers=[("IP", given)]).json))
    assert known["envelope"]["remoteAddress"] in ("192.0.2.10", "2001:db8::1")


def test_one_thousand_recipients_are_taken(http_sources: HttpSources, plain):
    recipients = [f"r{number}@company.example" for number in range(1_000)]
    assert http_sources.check(plain, *recipients).json["action"] == "no action"


def test_unknown_paths_and_wrong_secrets_are_rejected(http_sources: HttpSources, plain):
    assert ask(http_sources.rspamd_port, "GET", "/ping", b"", []).body == b"pong\r\n"
    assert http_sources.check(plain, path="/symbols").status == 404
    assert http_sources.check(plain, path="/learnspam").status == 404
    assert http_sources.check(plain, method="PUT").status == 405
    assert http_sources.check(plain, password="another-password-here").status == 401
    assert http_sources.check(plain, password="").json["action"] == "soft reject"


def test_the_limit_of_a_body_is_50_mib_and_a_slow_one_is_cut_off(http_sources: HttpSources, plain):
    large = plain + b"x" * (52_428_800 - len(plain))
    assert http_sources.check(large).status == 200
    assert http_sources.check(large + b"x").status == 413
    secret = [("Password", PASSWORD)]
    assert ask(http_sources.rspamd_port, "POST", "/checkv2", b"A: b\r\n", secret, length=100).status == 408


def test_a_large_message_passes(http_sources: HttpSources, plain):
    message = plain + b"The minutes again.\r\n" * 150_000
    checked = http_sources.check(message).json
    assert checked["action"] == "no action"
    assert http_sources.explain(ggrid_of_check(checked))["message"]["size"] == len(message)


def test_a_stopping_guard_answers_open_requests(http_sources: HttpSources, plain, pausable_clamd: PausableClamd):
    guard = http_sources.deployment.product.guards[0]
    pausable_clamd.pause()
    with ThreadPoolExecutor(3) as threads:
        checking = [threads.submit(http_sources.check, plain) for _ in range(2)]
        assert wait_until(lambda: in_processing(http_sources.deployment, 0) == 2)
        stopping = threads.submit(guard.stop)
        pausable_clamd.resume()
        assert [each.result().json["action"] for each in checking] == ["no action"] * 2
        stopping.result()
    with pytest.raises(OSError, match="refused"):
        http_sources.check(plain)
    guard.start()
