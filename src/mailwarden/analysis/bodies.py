"""Tells the text of a message from its files, as readers do."""

from mailwarden.analysis.file_types import HEAD, WEB_PAGE, kind_by_content
from mailwarden.message.message import Part

_BODIES = frozenset({"text/plain", "text/html"})


def is_body(part: Part) -> bool:
    """Tell a part that readers show as the text of the message from one that they show as a file."""
    return is_shown(part) and kind_by_content(part.content[:HEAD]) in {"", WEB_PAGE}


def is_shown(part: Part) -> bool:
    """Tell whether a part is declared as text without a name."""
    return part.media_type in _BODIES and not part.name and part.disposition != "attachment"
