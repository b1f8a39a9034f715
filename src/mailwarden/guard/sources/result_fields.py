"""The signed result fields as single names and values, for clients that put fields into the message themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime

from mailwarden.guard.delivery_headers import Cleaned, ResultSeal, clean
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.release_token import HEADER as BYPASS
from mailwarden.serving.spool import Spooled

# What only we may write: a client takes out whatever a message brings under these names.
OWN = (
    "X-Mailwarden-Ggrid",
    "X-Mailwarden-Verdict",
    "X-Mailwarden-Decision",
    "X-Mailwarden-Tags",
    "X-Mailwarden-Signature",
    BYPASS,
)


async def result_fields(seal: ResultSeal, finished: FinishedRequest, raw: Spooled) -> Sequence[tuple[str, str]]:
    """Return the fields from top to bottom; the signature speaks of the message as it was given, without ours."""
    crlf = b"\r\n" in next(raw.chunks(), b"")
    message = clean(raw) if crlf else Cleaned(b"", raw, 0)
    written = seal.fields(finished, await message.digest(), datetime.now(UTC)).decode("ascii")
    fields = written.removesuffix("\r\n").replace("\r\n\t", " ").split("\r\n")
    return [(name, value.strip()) for name, _, value in (field.partition(":") for field in fields)]
