"""An invitation and a text in a picture, in every archive and wrapper: each is read, or the message is not clean."""

import pytest

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Verdict
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from workshop.evasion.archives import ARCHIVES
from workshop.evasion.mail import with_file
from workshop.evasion.pictures import lines_of_text, saved
from workshop.evasion.wrappers import WRAPPERS

EVERY = ARCHIVES | WRAPPERS
ENVELOPE = Envelope("ada@north.example", ("bob@south.example",))
INVITATION = (
    b"BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nORGANIZER;CN=Ada:mailto:ada@north.example\r\n"
    b"SUMMARY:Order 48812\r\nDESCRIPTION:The payment for your plan has been approved.\\nOrder number: 48812\\n"
    b"Total: 389.00 USD\\nTo cancel\\, call our help desk: +1 (555) 013-0142\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
PICTURE = (
    "Your subscription has been renewed.\n389.00 USD will be charged to your account.\n"
    "If you did not make this purchase,\ncall us at +1 (555) 013-0142 to cancel it."
)


def verdict_of(wrapper: str, name: str, content: bytes) -> Verdict:
    raw = with_file(*EVERY[wrapper]({name: content}))
    return judge(
        Evidence(tuple(frame.report for frame in run_steps(Job(raw, envelope=ENVELOPE)))), load_policy()
    ).verdict


@pytest.mark.parametrize("wrapper", EVERY)
def test_an_invitation_is_read_in_every_wrapper(wrapper):
    assert verdict_of(wrapper, "invite.ics", INVITATION) not in (Verdict.CLEAN, Verdict.BULK)


# The bytes of a picture are no body of a message, as this wrapper would have it.
SHOWING = [name for name in EVERY if name != "tnef with a body"]


@pytest.mark.parametrize("wrapper", SHOWING)
def test_a_text_in_a_picture_is_read_in_every_wrapper(wrapper):
    assert verdict_of(wrapper, "p.png", saved(lines_of_text(PICTURE))) not in (Verdict.CLEAN, Verdict.BULK)
