"""One valid event of each type, for the documentation and for tests of formats."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import msgspec

from mailwarden.events.catalogue import (
    EngineDown,
    EngineUp,
    Event,
    EventData,
    Json,
    KeyCreated,
    KeyRevoked,
    ListChanged,
    MessageDeleted,
    MessageHeld,
    MessageReleased,
    MessageReported,
    MessageScanned,
    ReceiverDisabled,
    ReceiverTest,
    TenantChanged,
    TenantCreated,
    UserLogin,
    UserLoginFailed,
)
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile

_TENANT = UUID("0199a3f0-0000-7000-8000-000000000001")
_GGRID = UUID("0199a3f2-6c1e-7b54-9a11-5d0c7e2f8b10")
_UID = UUID("5b6f0c5e-7e0a-4c56-9a0e-3c1f4c0f9d21")
_USER = UUID("8c2d1f7e-1d0b-4f0e-8a52-6a4f0f4f6b11")
_MOMENT = datetime(2026, 3, 2, 9, 30, 0, 250_000, tzinfo=UTC)
_TO = ("anna@customer.example", "ben@customer.example")
_SUBJECT = "Your invoice is overdue"

_EXAMPLES: Sequence[tuple[EventData, UUID | None, str]] = (
    (
        MessageScanned(
            ggrid=_GGRID,
            verdict=Verdict.PHISHING,
            decision=Decision.QUARANTINE,
            tags=("auth.dmarc-fail", "link.brand-lookalike"),
            sender="billing@sender.example",
            recipients=_TO,
            recipient_count=2,
            from_address="billing@sender.example",
            subject=_SUBJECT,
            message_id="<20260302.1@sender.example>",
            sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            size=18_231,
            source="smtp",
            guard="mta-1",
            remote_address="192.0.2.25",
            campaign=UUID("0199a3f2-0000-7000-8000-00000000c0de"),
            profile=Profile.BALANCED,
            incomplete=False,
            received=_MOMENT,
            completed=_MOMENT,
        ),
        _TENANT,
        str(_GGRID),
    ),
    (
        MessageHeld(
            ggrid=_GGRID,
            uid=_UID,
            verdict=Verdict.PHISHING,
            sender="billing@sender.example",
            recipients=_TO,
            recipient_count=2,
            from_address="billing@sender.example",
            subject=_SUBJECT,
            size=18_231,
        ),
        _TENANT,
        str(_GGRID),
    ),
    (
        MessageReleased(
            _GGRID, _UID, Verdict.SUSPICIOUS, "billing@sender.example", _TO[:1], 1, _SUBJECT, by="user:anna"
        ),
        _TENANT,
        str(_GGRID),
    ),
    (
        MessageDeleted(
            _GGRID, _UID, Verdict.PHISHING, "billing@sender.example", _TO, 2, _SUBJECT, by="system", reason="retention"
        ),
        _TENANT,
        str(_GGRID),
    ),
    (MessageReported(_UID, _GGRID, "phishing", _SUBJECT, by="user:anna"), _TENANT, str(_GGRID)),
    (
        ListChanged("sender-block", "add", added=1, updated=0, deleted=0, entries=("@sender.example",), by="key:soar"),
        _TENANT,
        f"{_TENANT}/sender-block",
    ),
    (
        KeyCreated("k3v9x0a1b2c4", "soar", ("events:read",), (_TENANT,), None, None, by="user:anna"),
        _TENANT,
        "k3v9x0a1b2c4",
    ),
    (KeyRevoked("k3v9x0a1b2c4", "soar", by="user:anna"), _TENANT, "k3v9x0a1b2c4"),
    (UserLogin(_USER, "anna", "passkey", "192.0.2.7"), _TENANT, str(_USER)),
    (UserLoginFailed("password", None, "192.0.2.66"), None, "192.0.2.66"),
    (
        EngineDown("mta-1", "antivirus", required=True, detail="connection refused", since=_MOMENT),
        None,
        "mta-1/antivirus",
    ),
    (EngineUp("mta-1", "antivirus", required=True, detail="", since=_MOMENT), None, "mta-1/antivirus"),
    (TenantCreated("Customer", ("customer.example",), by="user:anna"), _TENANT, str(_TENANT)),
    (TenantChanged("Customer", ("profile", "retentionDays"), by="user:anna"), _TENANT, str(_TENANT)),
    (ReceiverDisabled("soar", _UID, "No delivery succeeded for 3 days. The receiver answered 500."), None, str(_UID)),
    (ReceiverTest("soar"), None, str(_UID)),
)


def examples() -> Sequence[Event]:
    """Return one valid event of each type, for the documentation and for tests of formats."""
    return [
        Event(
            UUID(int=_GGRID.int + number),
            data.type,
            _MOMENT,
            tenant,
            subject,
            cast("dict[str, Json]", msgspec.to_builtins(data, str_keys=True)),
        )
        for number, (data, tenant, subject) in enumerate(_EXAMPLES)
    ]
