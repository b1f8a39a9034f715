"""How long the certificates that a process uses remain valid, as a metric."""

import ssl
import time
from pathlib import Path

from cryptography import x509

from mailwarden.errors import ConfigurationError
from mailwarden.telemetry.metrics import Metrics, Samples


class CertificateMetrics:
    """Remembers the end of each certificate when the process loads it: a renewed file counts after the reload."""

    def __init__(self, metrics: Metrics) -> None:
        self._ends: dict[str, float] = {}
        metrics.read_gauge(
            "certificate_expiry_seconds",
            "Seconds until a certificate in use expires; negative afterwards.",
            self._samples,
            "certificate",
        )

    def loaded(self, context: ssl.SSLContext, **files: Path) -> ssl.SSLContext:
        """Note the files that the context was made from, by role, and return the context."""
        self.note(**files)
        return context

    def note(self, **files: Path) -> None:
        self._ends |= {role: end_of(path) for role, path in files.items()}

    def _samples(self) -> Samples:
        now = time.time()
        return [((role,), end - now) for role, end in self._ends.items()]


def end_of(path: Path) -> float:
    """Return the moment from which on a certificate of the file is invalid: the first of them to expire."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"tls: {path} has no certificate in PEM ({error}).") from None
    return min(each.not_valid_after_utc for each in found).timestamp()
