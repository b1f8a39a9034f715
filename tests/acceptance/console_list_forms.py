"""Forms of the console's list pages, sent without a browser."""

import re
from html import unescape

import requests

from tests.acceptance.console_session import ConsoleSession, text_of


def add(user: ConsoleSession, scope: str, *entries: str, name: str = "sender-block", **more: str) -> requests.Response:
    """Add entries as without JavaScript: the preview, then the form that it shows."""
    fields = {"scope": scope, "entries": "\n".join(entries), **more}
    preview = user.post(f"/console/lists/{name}/preview", fields, files={})
    assert preview.status_code == 200, text_of(preview)
    return user.post(f"/console/lists/{name}/add", confirmation_in(preview), files={})


def confirmation_in(page: requests.Response) -> dict[str, str]:
    """Return what the form that confirms would send."""
    form = page.text.rpartition('/add" enctype')[2]
    fields = dict(re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)">', form))
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert text is not None
    fields.pop("csrf", None)
    return {name: unescape(value) for name, value in {**fields, "entries": text[1].lstrip("\n")}.items()}
