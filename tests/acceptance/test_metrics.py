"""Every metric of the docs is in a scrape of a running abby and guard, and nothing else is."""

import re

import requests

from tests.acceptance.deployment import Deployment
from tests.conventions.test_alerts import SUFFIXES, rules
from tests.conventions.test_dashboards import FILES, queries
from tests.conventions.test_metrics import made
from tests.waiting import wait_until

# Of deployments with ClickHouse: tests/integration/test_clickhouse_product.py.
ELSEWHERE = (
    "mailwarden_history_store_failures_total",
    "mailwarden_history_store_seconds",
    "mailwarden_history_store_stale_reads_total",
    "mailwarden_history_store_up",
)
_TYPE = re.compile(r"^# TYPE (mailwarden_\w+) (\w+)$", re.MULTILINE)


def scrape_guard(deployment: Deployment, number: int = 0) -> str:
    tls = deployment.product.abby.folder / "tls"
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            f"{deployment.product.guards[number].url}/metrics",
            verify=str(tls / "ca.crt"),
            cert=(str(tls / "abby.crt"), str(tls / "abby.key")),
            timeout=30,
        )
    assert answer.status_code == 200
    return answer.text


def scrape_abby(deployment: Deployment) -> str:
    return deployment.client("meter").call("GET", "/metrics").body.decode()


def test_every_metric_of_the_source_is_in_a_live_scrape(monitored):
    found = {
        name: kind for page in (scrape_abby(monitored), scrape_guard(monitored)) for name, kind in _TYPE.findall(page)
    }
    expected = {name: kind for name, (kind, _) in made().items() if name not in ELSEWHERE}
    assert found == expected


def test_every_query_of_alerts_and_dashboards_finds_its_metrics(monitored):
    page = scrape_abby(monitored) + scrape_guard(monitored)
    families = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    series = {f"{name}{suffix}" for name, kind in families.items() for suffix in SUFFIXES.get(kind, ("",))}
    wanted = [rule["expr"] for rule in rules()] + [query for file in FILES for query in queries(file)]
    used = {name for query in wanted for name in re.findall(r"\b((?:mailwarden|process)_\w+)", query)}
    assert {name for name in used - series if not name.startswith(ELSEWHERE)} == set()


def test_a_scan_is_measured_by_engine(monitored, plain):
    monitored.client().submit(plain)
    page = scrape_guard(monitored)
    for engine in ("rspamd", "clamav", "dns"):
        assert f'mailwarden_engine_up{{engine="{engine}"}} 1.0' in page
        assert f'mailwarden_engine_scan_seconds_count{{engine="{engine}"}} 1.0' in page
        assert value(page, f'mailwarden_engine_check_seconds_count{{engine="{engine}"}}') >= 1
    assert 'mailwarden_engine_info{engine="clamav",version="ClamAV ' in page


def test_certificates_folders_pools_and_guards_are_shown(monitored):
    abby, guard = scrape_abby(monitored), scrape_guard(monitored)
    for page, roles in ((abby, ("listener", "client", "ca")), (guard, ("listener", "ca"))):
        for role in roles:
            assert value(page, f'mailwarden_certificate_expiry_seconds{{certificate="{role}"}}') > 800 * 86_400
        assert value(page, 'mailwarden_database_use_seconds_count{pool="main"}') > 0
        assert value(page, "mailwarden_database_up") == 1
    assert value(guard, 'mailwarden_disk_free_bytes{folder="spool"}') > 0
    assert value(guard, 'mailwarden_workers_running{lane="light"}') == value(
        guard, 'mailwarden_workers_limit{lane="light"}'
    )
    name = monitored.product.guards[0].url.removeprefix("https://")
    assert wait_until(lambda: value(scrape_abby(monitored), f'mailwarden_guard_up{{guard="{name}"}}') == 1)


def value(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    assert found, f"{series} is not in the scrape"
    return float(found[1])
