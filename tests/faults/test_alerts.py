"""Alerts reach a webhook through a real Prometheus and Alertmanager, and clear again."""

import os
import signal
import time

import pytest

from tests.faults.conftest import STEADY, Note
from tests.waiting import wait_until
from workshop.rig.certificates import sign
from workshop.rig.product import install_product
from workshop.rig.prometheus import monitoring

pytestmark = [pytest.mark.slow, pytest.mark.long]
SECONDS = 60.0
STALE = 60.0  # of the rule MailwardenListsStale
OF_THE_DISK = {"MailwardenDiskSpaceLow", "MailwardenDiskFull"}  # of the machine that runs the tests


@pytest.fixture
def monitored(restored_engines, database_url, tmp_path):
    """Run a product whose guard has a certificate for two days, with Prometheus and Alertmanager."""
    product = install_product(tmp_path / "product", restored_engines, database_url, guards=(STEADY,))
    tls = product.guards[0].folder / "tls"
    for name in ("guard.crt", "guard.key"):
        (tls / name).rename(tls / f"long-{name}")
    sign(tls, tls / "guard", ["127.0.0.1", "localhost"])
    with product:
        product.start()
        began = time.monotonic()
        with monitoring(tmp_path / "monitoring", product) as notifications:
            yield product, notifications, began


def test_three_alerts_reach_the_webhook_and_clear(restored_engines, monitored, note: Note):
    product, notifications, began = monitored
    guard = product.guards[0]

    def fires(name: str, since: float, seconds: float = SECONDS) -> None:
        took = notifications.wait_for(name, "firing", since=since, seconds=seconds)
        note(f"alert {name}: at the webhook after {took:.1f} s")

    def clears(name: str, since: float) -> None:
        took = notifications.wait_for(name, "resolved", since=since, seconds=SECONDS)
        note(f"alert {name}: cleared after {took:.1f} s")

    fires("MailwardenCertificateExpiresSoon", began)
    tls = guard.folder / "tls"
    for name in ("guard.crt", "guard.key"):
        (tls / f"long-{name}").replace(tls / name)
    renewed = time.monotonic()
    os.kill(guard.pid, signal.SIGHUP)
    clears("MailwardenCertificateExpiresSoon", renewed)
    assert notifications.names - OF_THE_DISK == {"MailwardenCertificateExpiresSoon"}, "a healthy product is silent"

    stopped = time.monotonic()
    restored_engines.rspamd.stop()
    fires("MailwardenEngineDown", stopped)
    started = time.monotonic()
    restored_engines.rspamd.start()
    clears("MailwardenEngineDown", started)

    stopped = time.monotonic()
    restored_engines.postgresql.stop()
    fires("MailwardenListsStale", stopped, STALE + SECONDS)
    started = time.monotonic()
    restored_engines.postgresql.start()
    clears("MailwardenListsStale", started)
    assert wait_until(lambda: guard.running)
