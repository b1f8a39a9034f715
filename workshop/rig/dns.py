"""DNS: unbound with the test domains; about almost every other name it answers at once that it does not exist."""

import base64
from collections.abc import Iterable
from pathlib import Path

import dkim
import dns.exception
import dns.message
import dns.query
import dns.rcode
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from workshop.rig.folders import make_folder
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program
from workshop.rig.zones import DEAD_ZONES, NETWORK, SELECTOR, ZONES, Zone

HOST = "127.0.0.1"
SECONDS_TO_LIVE = 300
TEXT_PIECE = 255
# RFC 6376, section 5.4.1, and RFC 8058, section 4; of those that a message has.
SIGNED_HEADERS = [
    *(b"from", b"to", b"cc", b"reply-to", b"sender", b"subject", b"date", b"message-id", b"in-reply-to", b"references"),
    *(b"mime-version", b"content-type", b"list-id", b"list-unsubscribe", b"list-unsubscribe-post"),
]


class DkimKey:
    """A key pair of this run; `record` is the text that a domain publishes under the selector."""

    def __init__(self, bits: int = 2048) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        self._private_key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        public_key = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.record = f"v=DKIM1; k=rsa; p={base64.b64encode(public_key).decode('ascii')}"

    def sign(self, message: bytes, domain: str) -> bytes:
        """Put a DKIM signature of this domain in front of a message."""
        signature = dkim.sign(
            message,
            SELECTOR.encode("ascii"),
            domain.encode("ascii"),
            self._private_key,
            canonicalize=(b"relaxed", b"relaxed"),
            include_headers=SIGNED_HEADERS,
        )
        assert isinstance(signature, bytes)
        return signature + message


class Dns(ServerProcess):
    def __init__(self, folder: Path, records: Iterable[str] = (), key: DkimKey | None = None) -> None:
        """Serve the zones of workshop/rig/zones.py, and further records in the form of `record_line`.

        Several name servers of one test share a key, so that each of them knows every signature.
        """
        make_folder(folder)
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self._key = key or DkimKey()
        configuration = folder / "unbound.conf"
        text = _configuration(folder, self.port, self._key.record, records)
        configuration.write_text(text, "ascii")
        super().__init__(
            "dns", [find_program("unbound"), "-d", "-c", str(configuration)], folder / "unbound.log", self._answers
        )

    def sign(self, message: bytes, domain: str) -> bytes:
        """Put a DKIM signature of this domain in front of a message."""
        if not any(zone.name == domain and zone.dkim for zone in ZONES):
            raise RigError(f"{domain} publishes no DKIM key: workshop/rig/zones.py has those that do")
        return self._key.sign(message, domain)

    def look_up(self, name: str, kind: str, timeout: float = 5.0) -> list[str]:
        """Query the records of a name; none if it does not exist."""
        answer = dns.query.udp(dns.message.make_query(name, kind), HOST, timeout=timeout, port=self.port)
        return [record.to_text() for rrset in answer.answer for record in rrset]

    def _answers(self) -> bool:
        try:
            return bool(self.look_up(ZONES[0].name, "A", timeout=0.1))
        except dns.exception.DNSException:
            return False


def record_line(name: str, kind: str, value: str) -> str:
    """Return one record as the name server reads it; the value of a TXT record is its text."""
    return f"{name}. {SECONDS_TO_LIVE} IN {kind} {_quoted(value) if kind == 'TXT' else value}"


def _configuration(folder: Path, port: int, dkim_record: str, records: Iterable[str]) -> str:
    lines = [
        "server:",
        f'  directory: "{folder}"',
        '  chroot: ""',
        '  username: ""',
        '  pidfile: ""',
        '  logfile: ""',
        "  use-syslog: no",
        "  do-daemonize: no",
        f"  interface: {HOST}",
        f"  port: {port}",
        "  do-ip6: no",
        "  access-control: 127.0.0.0/8 allow",
        '  module-config: "iterator"',
        '  local-zone: "." static',
        f'  local-zone: "{NETWORK}." static',
        *(line for zone in ZONES for line in _zone_lines(zone, dkim_record)),
        *(f"  local-data: '{record}'" for record in records),
        *(f'  local-zone: "{zone.name}." {zone.kind}' for zone in DEAD_ZONES),
        "remote-control:",
        "  control-enable: no",
    ]
    return "\n".join(lines) + "\n"


def _zone_lines(zone: Zone, dkim_record: str) -> list[str]:
    records = [
        record_line(zone.name, "A", zone.address),
        record_line(zone.name, "MX", f"10 {zone.mail_host}."),
        record_line(zone.mail_host, "A", zone.address),
        record_line(f"{zone.address.rpartition('.')[2]}.{NETWORK}", "PTR", f"{zone.mail_host}."),
    ]
    texts = dict(zone.texts)
    if zone.spf is not None:
        texts[zone.name] = zone.spf
    if zone.dmarc is not None:
        texts[f"_dmarc.{zone.name}"] = zone.dmarc
    if zone.dkim:
        texts[f"{SELECTOR}._domainkey.{zone.name}"] = dkim_record
    records.extend(record_line(name, "TXT", text) for name, text in texts.items())
    return [f'  local-zone: "{zone.name}." static', *(f"  local-data: '{record}'" for record in records)]


def _quoted(text: str) -> str:
    """Write a text record; its pieces have at most 255 characters."""
    return " ".join(f'"{text[start : start + TEXT_PIECE]}"' for start in range(0, len(text), TEXT_PIECE))
