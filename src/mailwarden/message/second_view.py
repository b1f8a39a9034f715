"""The second view of a message: the parts that another parser, written by others in Rust, sees in the same bytes.

Security: hands hostile bytes to a foreign parser; a refusal of its own is an absent view, never an error.
"""

from typing import NamedTuple

import fast_mail_parser

from mailwarden.message.coverage import Coverage
from mailwarden.model.place import area


class SecondPart(NamedTuple):
    media_type: str
    name: str
    disposition: str
    content: bytes


def view_parts(raw: bytes, coverage: Coverage) -> list[SecondPart] | None:
    """Return the decoded leaves in order, or None where the parser refuses the message."""
    try:
        root = fast_mail_parser.parse_email_tree(raw, mode="lazy")
    except (fast_mail_parser.ParseError, ValueError):
        return None
    found: list[SecondPart] = []
    waiting = [root]
    while waiting:
        if len(found) >= coverage.limits.parts:
            coverage.beyond("parts", area("the message"))
            break
        node = waiting.pop()
        if node.children:
            waiting.extend(reversed(node.children))
            continue
        try:
            content = node.content
        except (fast_mail_parser.ParseError, ValueError):
            continue
        if content:
            found.append(SecondPart(node.content_type.lower(), node.filename, node.disposition or "", content))
    return found
