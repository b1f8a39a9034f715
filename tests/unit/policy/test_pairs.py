"""Attacks from unknown domains and free mailboxes are held; honest messages with the same words are not suspicious."""

from email.message import EmailMessage
from uuid import UUID

import pytest
from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Fact, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy

RECIPIENT = "dana@acme.example"
PROVED = ("aligned", "spf-pass", "dkim-pass", "dmarc-pass")


class Letter(Struct, frozen=True):
    """A message: the name and the address of its sender, its subject, its text, and links as label and address."""

    name: str
    address: str
    subject: str
    text: str
    links: tuple[tuple[str, str], ...] = ()
    leave: str = ""  # the address that one click unsubscribes at


PAIRS = {
    "a well-known name": (
        Letter(
            "Netflix",
            "info@harbour-lights.example",
            "We could not take your payment",
            "We could not take the payment for your next month. Please update your payment details.",
            (("Update account", "https://harbour-lights.example/u/77"),),
        ),
        Letter(
            "Harbour Lights Cinema",
            "info@harbour-lights.example",
            "We could not take your payment",
            "We could not take the payment for your next month. Please update your payment details.",
            (("Update account", "https://harbour-lights.example/u/77"),),
        ),
    ),
    "a well-known name and a telephone number": (
        Letter(
            "Apple Pay",
            "hold@kestrel-desk.example",
            "A payment of $912.40 is on hold",
            "We hold a payment of $912.40 at a store in Reno. If you did not authorize it, dial +1 888 555 0133.",
        ),
        Letter(
            "Kestrel Desk",
            "hold@kestrel-desk.example",
            "Your quote of $912.40",
            "Your desk costs $912.40. If you have a question about the payment, our shop is at +1 888 555 0133.",
        ),
    ),
    "a mailing": (
        Letter(
            "Joint Relief",
            "post@marlow-fields.example",
            "Melt fat while you sleep",
            "A nurse found a recipe that melts belly fat. Doctors are stunned by this weight loss secret.",
            (("Watch", "https://marlow-fields.example/v"), ("Unsubscribe", "https://marlow-fields.example/u")),
            "https://marlow-fields.example/u",
        ),
        Letter(
            "Marlow Fields Clinic",
            "post@marlow-fields.example",
            "How we sleep, and what we eat",
            "Our nurse has a recipe for the cold season. Doctors of our clinic talk about sleep on Thursday.",
            (("Read", "https://marlow-fields.example/v"), ("Unsubscribe", "https://marlow-fields.example/u")),
            "https://marlow-fields.example/u",
        ),
    ),
    "a renewal and a telephone number": (
        Letter(
            "Rechnungsabteilung",
            "rechnung.service2291@gmail.com",
            "Auftrag 4471",
            "Ihr Sicherheitspaket wurde um 36 Monate verlängert. Betrag: 429,00 EUR. Die Abbuchung erfolgt innerhalb "
            "von 24 Stunden. Falls Sie die Verlängerung nicht wünschen, rufen Sie uns bitte unter 030 5550 1423 an.",
        ),
        Letter(
            "Imkerei Sonnfeld",
            "post@imkerei-sonnfeld.example",
            "Ihre Rechnung",
            "Anbei die Rechnung für den Honig, Betrag: 29,00 EUR. Falls Sie eine Frage haben, rufen Sie uns an, "
            "030 5550 1423.",
        ),
    ),
    "a gift of millions": (
        Letter(
            "Maria Elena",
            "mariaelena.donacion@outlook.com",
            "Para usted",
            "He decidido donar 1.500.000 dólares a cinco personas elegidas al azar. Respóndame con su nombre.",
        ),
        Letter(
            "Fundación Alcera",
            "hola@fundacion-alcera.example",
            "Gracias por su ayuda",
            "Gracias a su ayuda pudimos donar 1.500 libros a cinco escuelas. Le contamos más en la reunión del jueves.",
        ),
    ),
    "work from home": (
        Letter(
            "Hannah",
            "hannah.team.hr@gmail.com",
            "Part-time position",
            "The work is done from home, rating hotels and apps. Daily pay 150 USD, no experience needed. "
            "Message our coordinator on WhatsApp +1 555 010 4471.",
        ),
        Letter(
            "Northbridge Talent",
            "ana@northbridge-talent.example",
            "Part-time position",
            "Our client in Rotterdam looks for an engineer, part-time and remote. Message me if you are curious.",
        ),
    ),
    "a threat": (
        Letter(
            "Crew",
            "crew@node-post.example",
            "Your network",
            "We have chosen your company for our next DDoS operation against your network. Pay 4 XMR before Friday. "
            "The fee doubles each day after.",
        ),
        Letter(
            "Node Post Hosting",
            "status@node-post.example",
            "Your network",
            "Last night a DDoS operation against our network slowed your site. It ended at four.",
        ),
    ),
}
# Honest messages that words alone made suspicious.
NOTICES = {
    "a card that expired": Letter(
        "Paper Heron",
        "billing@paper-heron.example",
        "Your payment was unsuccessful",
        "We could not charge your card for your subscription. To avoid any interruption, update your payment method.",
        (("Update payment method", "https://paper-heron.example/billing?t=9a8b"),),
    ),
    "a store that is nearly full": Letter(
        "Nimbus Drive",
        "no-reply@nimbus-drive.example",
        "Your storage is almost full",
        "You have used 4.6 GB of your 5 GB. When your storage is full you cannot upload new files.",
        (("Get more storage", "https://nimbus-drive.example/up"), ("Manage", "https://nimbus-drive.example/m")),
    ),
    "a code": Letter(
        "Fieldnote",
        "no-reply@fieldnote.example",
        "Your sign-in code",
        "Someone tried to sign in to your account. Please verify your account with the code 418 220.",
    ),
}


def judged(letter: Letter) -> Judgement:
    mail = EmailMessage()
    mail["From"] = f'"{letter.name}" <{letter.address}>'
    mail["To"] = RECIPIENT
    mail["Subject"] = letter.subject
    mail["Date"] = "Sun, 15 Nov 2026 10:00:00 +0000"
    mail["Message-ID"] = f"<1.{letter.address}>"
    if letter.leave:
        mail["List-Unsubscribe"] = f"<{letter.leave}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    mail.set_content(letter.text)
    if letter.links:
        anchors = "".join(f'<p><a href="{url}">{label}</a></p>' for label, url in letter.links)
        mail.add_alternative(f"<p>{letter.text}</p>{anchors}", subtype="html")
    envelope = Envelope(letter.address, (RECIPIENT,), "203.0.113.77", "mail.example")
    reports = tuple(frame.report for frame in run_steps(Job(mail.as_bytes(), envelope=envelope)))
    facts: dict[str, Fact] = {"domain": letter.address.partition("@")[2], "by": "DKIM"}
    names = [f"authentication.{name}" for name in PROVED] + ["rspamd.unsubscribe-header"] * bool(letter.leave)
    said = Report("authentication", True, Status.FINISHED, 1.0, tuple(Finding(name, facts=facts) for name in names))
    return judge(Evidence((*reports, said)), load_policy())


def is_held(judgement: Judgement) -> bool:
    assignment = Assignment(UUID(int=1), AssignedBy.REQUEST, Profile.BALANCED)
    return decide(judgement, assignment, load_policy()).decision is Decision.QUARANTINE


@pytest.mark.parametrize("pair", PAIRS)
def test_an_attack_is_held(pair):
    assert is_held(judged(PAIRS[pair][0]))


@pytest.mark.parametrize("pair", PAIRS)
def test_an_honest_message_with_the_same_words_is_not_suspicious(pair):
    assert judged(PAIRS[pair][1]).verdict in {Verdict.CLEAN, Verdict.BULK}


@pytest.mark.parametrize("notice", NOTICES)
def test_a_notice_under_the_name_of_its_domain_is_not_suspicious(notice):
    judgement = judged(NOTICES[notice])
    assert judgement.verdict in {Verdict.CLEAN, Verdict.BULK}, judgement.points
