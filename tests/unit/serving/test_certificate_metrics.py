"""The metric shows how long the certificate in use is valid, not the one on disk."""

import re
import shutil

import pytest

from mailwarden.cli.certificates import make_certificates
from mailwarden.errors import ConfigurationError
from mailwarden.serving.tls import CertificateMetrics, ServerTls, server_context
from mailwarden.telemetry.metrics import Metrics
from workshop.rig.certificates import sign

DAY = 86_400


def days(metrics: Metrics, role: str) -> float:
    found = re.search(rf'mailwarden_certificate_expiry_seconds{{certificate="{role}"}} (\S+)', metrics.page().decode())
    assert found
    return float(found[1]) / DAY


@pytest.fixture
def folder(tmp_path):
    make_certificates(tmp_path, ["localhost"])
    return tmp_path


def test_a_renewed_certificate_counts_after_the_reload(folder):
    metrics = Metrics()
    certificates = CertificateMetrics(metrics)
    files = folder / "guard.crt", folder / "guard.key", folder / "ca.crt"
    tls = ServerTls(lambda: certificates.loaded(server_context(*files), listener=files[0], ca=files[2]))
    assert days(metrics, "listener") == pytest.approx(825, abs=1)
    assert days(metrics, "ca") == pytest.approx(3650, abs=5)

    certificate, key = sign(folder, folder / "short", ["localhost"])
    shutil.copy(certificate, files[0])
    shutil.copy(key, files[1])
    assert days(metrics, "listener") > 800
    tls.reload()
    assert days(metrics, "listener") == pytest.approx(2, abs=0.1)


def test_a_failed_reload_keeps_the_certificate_and_its_end(folder):
    metrics = Metrics()
    certificates = CertificateMetrics(metrics)
    files = folder / "guard.crt", folder / "guard.key"
    tls = ServerTls(lambda: certificates.loaded(server_context(*files), listener=files[0]))
    files[0].write_text("broken")
    with pytest.raises(ConfigurationError):
        tls.reload()
    assert days(metrics, "listener") > 800


def test_the_first_certificate_of_a_chain_to_expire_counts(folder):
    metrics = Metrics()
    certificates = CertificateMetrics(metrics)
    short, _ = sign(folder, folder / "short", ["localhost"])
    chain = folder / "chain.crt"
    chain.write_bytes((folder / "guard.crt").read_bytes() + (folder / short).read_bytes())
    certificates.note(listener=chain)
    assert days(metrics, "listener") == pytest.approx(2, abs=0.1)


def test_a_file_without_a_certificate_is_named(tmp_path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigurationError, match="empty has no certificate in PEM"):
        CertificateMetrics(Metrics()).note(listener=tmp_path / "empty")
