"""Sample messages for the first steps: harmless, spam and malware by the test texts that every filter knows."""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from mailwarden.access.users import User
from mailwarden.console.language import N_
from mailwarden.engines.samples import EICAR, GTUBE
from mailwarden.model.tenant import Tenant

SENDER = "sample@mailwarden.invalid"  # a reserved domain, so that a bounce has no recipient
_ANYBODY = "recipient@company.example"
_PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+", re.ASCII)  # needs no quotes in JSON and shell


class SampleName(StrEnum):
    HARMLESS = "harmless"
    SPAM = "spam"
    MALWARE = "malware"


class Sample(Struct, frozen=True):
    name: SampleName
    title: str
    sentence: str


SAMPLES: Sequence[Sample] = (
    Sample(SampleName.HARMLESS, N_("Harmless message"), N_("A short text without evidence against it.")),
    Sample(SampleName.SPAM, N_("Spam (GTUBE)"), N_("Contains GTUBE, the test text of spam filters.")),
    Sample(SampleName.MALWARE, N_("Malware (EICAR)"), N_("Carries EICAR, the harmless test file of virus scanners.")),
)


def sample_message(name: SampleName, recipient: str, moment: datetime) -> bytes:
    """Return the message; its Message-ID is unique by the time."""
    head = (
        f"From: Mailwarden sample <{SENDER}>\r\nTo: {recipient}\r\nSubject: Mailwarden sample: {name}\r\n"
        f"Date: {format_datetime(moment)}\r\nMessage-ID: <{moment.timestamp():.6f}.{name}@mailwarden.invalid>\r\n"
        "MIME-Version: 1.0\r\n"
    )
    return head.encode("ascii") + _body(name)


def _body(name: SampleName) -> bytes:
    text = b"Content-Type: text/plain; charset=us-ascii\r\n\r\n"
    match name:
        case SampleName.HARMLESS:
            return text + b"This message shows that Mailwarden scans your mail.\r\n"
        case SampleName.SPAM:
            return text + b"This message tests the spam filter.\r\n\r\n" + GTUBE + b"\r\n"
        case SampleName.MALWARE:
            return (
                b"Content-Type: multipart/mixed; boundary=sample\r\n\r\n--sample\r\n"
                + text
                + b"This message tests the virus scanner. Its attachment is harmless.\r\n--sample\r\n"
                b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
                b'Content-Disposition: attachment; filename="eicar.com"\r\n\r\n'
                + b64encode(EICAR)
                + b"\r\n--sample--\r\n"
            )


def recipient_of(tenant: Tenant | None, user: User) -> str:
    """Return the user's own address if it belongs to the tenant, or the postmaster of its first domain."""
    if tenant is None or not tenant.domains:
        return _ANYBODY
    address = user.email or ""
    if _PLAIN_ADDRESS.fullmatch(address) and address.rpartition("@")[2].lower() in tenant.domains:
        return address
    return f"postmaster@{tenant.domains[0]}"


def parameters_of_sample(recipient: str, tenant: UUID | None) -> str:
    """Return the parameters of the submission as JSON."""
    record: dict[str, object] = {"borderMtaData": {"envelopeFrom": SENDER, "envelopeRecipients": [recipient]}}
    if tenant is not None:
        record["tenantUid"] = str(tenant)
    return json.dumps(record)


def sample_curl(site: str, key: str, name: SampleName, recipient: str, tenant: UUID | None) -> str:
    """Return a curl command for a shell that submits the message, with the message in it."""
    parameters = shlex.quote(f"parameters={parameters_of_sample(recipient, tenant)};type=application/json")
    message = sample_message(name, recipient, datetime.now(UTC)).decode("ascii").replace("\r\n", "\n")
    return (
        f"curl -H {shlex.quote(f'Authorization: apikey {key}')} \\\n  -F {parameters} \\\n"
        f"  -F 'email=@-' {site}/v1/messageQueue/submitEmail <<'END'\n{message}END"
    )
