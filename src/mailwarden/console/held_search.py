"""What an address asks of the quarantine: the filters as they were typed, and the place to go on from."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from msgspec import Struct

from mailwarden.console.quarantine import QUARANTINE
from mailwarden.errors import SchemaViolation
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.held import HeldMessage, Place, Question, State

ANY = "any"
MAX_TEXT = 500
# States as the filter names them; without one, the first.
STATES: Mapping[str, str] = {
    State.HELD: "held",
    State.RELEASING: "being released",
    State.RELEASED: "released",
    State.DELETED: "deleted",
    ANY: "any",
}
VERDICTS = tuple(each for each in Verdict if each not in (Verdict.CLEAN, Verdict.UNKNOWN))


class HeldSearch(Struct, frozen=True):
    tenant: str = ""
    verdict: str = ""
    state: str = State.HELD
    recipient: str = ""
    sender: str = ""
    subject: str = ""
    after: Place | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether something was asked for, so that finding nothing does not mean that nothing is held."""
        return self != HeldSearch(after=self.after)

    def address(self, **changes: object) -> str:
        """Return the address of this search from its first page on, with some of it changed."""
        given = {
            "tenant": self.tenant,
            "verdict": self.verdict,
            "state": "" if self.state == State.HELD else self.state,
            "recipient": self.recipient,
            "sender": self.sender,
            "subject": self.subject,
            **changes,
        }
        asked = urlencode({name: str(value) for name, value in given.items() if value})
        return f"{QUARANTINE}?{asked}" if asked else QUARANTINE

    def to_older(self, last: HeldMessage) -> str:
        """Return the address of the page after the one that ends with this message."""
        return self.address(after=f"{last.received.astimezone(UTC).isoformat()}_{last.uid}")

    def question(self, tenant: UUID | None) -> Question:
        return Question(
            tenant=tenant,
            verdict=Verdict(self.verdict) if self.verdict else None,
            recipient=_address(self.recipient),
            sender=_address(self.sender),
            text=self.subject or None,
            state=None if self.state == ANY else State(self.state),
            after=self.after,
        )


def read_search(query: Mapping[str, str]) -> HeldSearch:
    """Return what the address asks for; raise SchemaViolation where it names nothing that there is."""
    verdict, state = query.get("verdict", ""), query.get("state", "") or State.HELD
    if verdict and verdict not in list(Verdict):
        raise SchemaViolation("There is no verdict of that name.")
    if state not in STATES:
        raise SchemaViolation("There is no state of that name.")
    return HeldSearch(
        tenant=_typed(query, "tenant"),
        verdict=verdict,
        state=state,
        recipient=_typed(query, "recipient"),
        sender=_typed(query, "sender"),
        subject=_typed(query, "subject"),
        after=_place(query.get("after", "")),
    )


def _typed(query: Mapping[str, str], name: str) -> str:
    return query.get(name, "").strip()[:MAX_TEXT]


def _address(text: str) -> str | None:
    """Return an address as the quarantine looks for it; what is no address is a domain."""
    if not text:
        return None
    return text if "@" in text else f"@{text}"


def _place(text: str) -> Place | None:
    if not text:
        return None
    moment, _, uid = text.partition("_")
    try:
        return Place(datetime.fromisoformat(moment).astimezone(UTC), UUID(uid))
    except (ValueError, OverflowError):
        raise SchemaViolation("The place to go on from cannot be read.") from None
