"""No ambiguous message passes in silence: the file in it is seen, or the message is reported."""

import pytest

from mailwarden.message.charsets import decode_text
from mailwarden.message.message import Message
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure
from torture.ambiguous import EICAR, Ambiguous, ambiguous

MESSAGES = list(ambiguous())


def _is_seen(message: Message) -> bool:
    """Look for the file as analyzers do: in the bytes of a part, and in its text."""
    return any(
        EICAR in part.content or EICAR.decode() in decode_text(part.content, part.charset) for part in message.parts
    )


def test_there_are_more_than_two_hundred_and_all_differ():
    assert len({message.raw for message in MESSAGES}) == len(MESSAGES) >= 200


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_the_file_is_seen_or_the_message_is_reported(message: Ambiguous):
    report = check_structure(message.raw)
    parsed = parse_message(message.raw, report=report)
    assert _is_seen(parsed) or parsed.ambiguities or report.tripped


def test_most_files_are_seen_not_only_reported():
    seen = sum(_is_seen(parse_message(each.raw)) for each in MESSAGES)
    assert seen > 0.85 * len(MESSAGES)
