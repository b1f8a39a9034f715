"""Random headers of Rspamd's clients are parsed or rejected with an error of the API."""

from types import SimpleNamespace
from typing import cast

from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from mailwarden.errors import MailwardenError
from mailwarden.guard.sources.rspamd_api import envelope_in_headers

NAMES = st.sampled_from(["From", "Rcpt", "IP", "Helo", "Shm", "Flags", "User"])
TEXTS = st.text(max_size=60) | st.sampled_from(['"a,b"@c.example', "<>", "[::1]:25", "192.0.2.1:25", "a@b,c@d", '"'])


@given(st.lists(st.tuples(NAMES, TEXTS), max_size=8))
def test_headers_make_an_envelope_or_an_error(headers: list[tuple[str, str]]) -> None:
    request = cast("web.BaseRequest", SimpleNamespace(headers=CIMultiDict(headers)))
    try:
        envelope = envelope_in_headers(request)
    except MailwardenError:
        return
    for text in (envelope.sender, *envelope.recipients, envelope.helo or "", envelope.remote_address or ""):
        assert not any(character < " " for character in text)
