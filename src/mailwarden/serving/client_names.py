"""Checks the names in a client's certificate against the configured names.

The CA shows that a certificate belongs to the deployment; only its name shows the process. The check follows RFC 9525:
names come from subjectAltName alone, never from the common name (section 2), DNS names compare without case (section
6.3), IP addresses by value (section 6.4). A wildcard in a certificate matches nothing here: a client is one process,
and section 6.3 leaves wildcards to the application.
"""

import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from mailwarden.errors import Forbidden
from mailwarden.telemetry.logs import get_logger

ABBY_NAME = "abby.mailwarden.internal"  # in the certificate of abby that `mailwarden init` makes
LOG_AGAIN_SECONDS = 60.0
_MAX_REMEMBERED = 100
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.IGNORECASE)

log = get_logger("client_names")


class ClientNames:
    """The clients that may call a process."""

    def __init__(self, names: Sequence[str], setting: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = frozenset(map(_canonical, names))
        self._setting = setting
        self._clock = clock
        self._logged: dict[tuple[str, ...], float] = {}

    def require(self, certificate: Mapping[str, object] | None, address: str | None) -> None:
        """Raise Forbidden unless the certificate, in the form of `ssl`, has one of the names."""
        names = tuple(names_in(certificate or {}))
        if self._names.isdisjoint(map(_canonical, names)):
            self._log(names, address)
            shown = ", ".join(names) or "none"
            raise Forbidden(f"The client certificate has no name of {self._setting} (its names: {shown[:500]}).")

    def _log(self, names: tuple[str, ...], address: str | None) -> None:
        """Log each certificate at most once per minute: a misconfigured client calls every second."""
        now = self._clock()
        if now - self._logged.get(names, float("-inf")) < LOG_AGAIN_SECONDS:
            return
        if len(self._logged) >= _MAX_REMEMBERED:
            self._logged.clear()
        self._logged[names] = now
        log.warning(
            "client certificate rejected",
            names=list(names)[:20],
            address=address,
            advice=f"If this client may call, add one of its names to {self._setting}.",
        )


def names_in(certificate: Mapping[str, object]) -> Iterator[str]:
    """Yield the DNS names and IP addresses of subjectAltName."""
    alternatives = certificate.get("subjectAltName", ())
    for kind, value in alternatives if isinstance(alternatives, tuple) else ():
        if kind in ("DNS", "IP Address"):
            yield value


def name_mistakes(key: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in configured names."""
    for name in names:
        if not _is_address(name) and not _DNS_NAME.fullmatch(name):
            yield key, f"`{name}` is not a DNS name or IP address; wildcards are not allowed"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _canonical(name: str) -> str:
    if _is_address(name):
        return f"address {ipaddress.ip_address(name)}"
    return f"name {name.lower().removesuffix('.')}" if "*" not in name else "wildcard"
