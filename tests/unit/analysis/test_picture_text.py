"""Texts in pictures: which pictures are read, what becomes of their text, and when reading stops."""

import random
from email.message import EmailMessage

import pytest
from msgspec.structs import replace
from PIL import Image

from mailwarden.analysis import picture_text
from mailwarden.analysis.picture_text import is_drawn
from mailwarden.analysis.view import View
from mailwarden.files import text_recognition
from mailwarden.files.text_recognition import choose_language, languages
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Verdict
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from workshop.evasion.pictures import lines_of_text, saved

TEXT = "Your mailbox has been suspended.\nVerify your account today."
CHARGE = (
    "Your subscription has been renewed.\n389.00 USD will be charged to your account.\n"
    "If you did not make this purchase,\ncall us at +1 (555) 013-0142 to cancel it."
)
needs_recognition = pytest.mark.skipif(not languages(), reason="text recognition is an optional package")


def raw_of(picture: Image.Image, body: str = "", *, attached: bool = False) -> bytes:
    message = EmailMessage()
    message["From"] = "ada@north.example"
    message["Subject"] = "Notice"
    message.set_content(f"<p>{body}</p><img src='cid:p'>", subtype="html")
    disposition = "attachment" if attached else "inline"
    message.add_related(saved(picture), "image", "png", cid="<p>", disposition=disposition, filename="p.png")
    return message.as_bytes()


def view_of(picture: Image.Image, body: str = "", *, attached: bool = False, coverage: Coverage | None = None) -> View:
    return View(parse_message(raw_of(picture, body, attached=attached)), coverage=coverage)


def noise() -> Image.Image:
    return Image.frombytes("L", (600, 400), random.Random(1).randbytes(240_000))


@needs_recognition
def test_the_text_of_a_picture_is_text_of_the_message():
    view = view_of(lines_of_text(TEXT))
    assert [(each.text, each.place.name) for each in view.picture_texts] == [(" ".join(TEXT.split()), "p.png")]
    assert "mailbox has been suspended" in view.folded_text
    assert view.coverage.complete


@needs_recognition
@pytest.mark.parametrize("scale", [0.55, 3.0])
def test_small_and_large_letters_are_read(scale):
    picture = lines_of_text(TEXT + "\n" * 12)
    sized = picture.resize((int(picture.width * scale), int(picture.height * scale)), Image.Resampling.BICUBIC)
    assert "mailbox has been suspended" in view_of(sized).folded_text


@pytest.mark.parametrize(
    ("picture", "body", "attached"),
    [
        (lines_of_text(TEXT), "word " * 100, False),
        (lines_of_text(TEXT), "word " * 30, True),
        (lines_of_text(TEXT).resize((300, 100)), "", False),
        (noise(), "", False),
    ],
    ids=["text beside it", "attachment", "small", "photograph"],
)
def test_a_picture_that_does_not_carry_the_message_is_not_read(monkeypatch, picture, body, attached):
    monkeypatch.setattr(picture_text, "recognize", lambda *_: pytest.fail("it was read"))
    assert view_of(picture, body, attached=attached).picture_texts == ()


@needs_recognition
def test_hidden_text_beside_a_picture_does_not_stop_the_reader():
    hidden = f"<span style='display:none'>{'word ' * 200}</span>"
    assert "mailbox has been suspended" in view_of(lines_of_text(TEXT), hidden).folded_text


@needs_recognition
def test_a_picture_that_is_not_finished_in_time_is_missed():
    coverage = Coverage(replace(LIMITS, recognition_seconds=0))
    assert view_of(lines_of_text(TEXT), coverage=coverage).picture_texts == ()
    assert [missed.limit for missed in coverage.missed] == ["recognition_seconds"]


@needs_recognition
def test_recognition_stops_at_its_deadline():
    text, finished = text_recognition.recognize(lines_of_text(TEXT), languages()[0], 1)
    assert not finished, text


def test_without_the_library_the_analysis_is_complete(monkeypatch):
    monkeypatch.setattr(text_recognition, "_library", lambda: None)
    view = view_of(lines_of_text(TEXT))
    assert view.picture_texts == ()
    assert view.coverage.complete
    assert text_recognition.recognize(lines_of_text(TEXT), "eng", 1_000) == ("", True)


def test_japanese_text_chooses_the_japanese_model(monkeypatch):
    monkeypatch.setattr(text_recognition, "languages", lambda: ("eng", "jpn"))
    assert choose_language(("お知らせ",)) == "jpn"
    assert choose_language(("Notice", "")) == "eng"


def test_a_drawing_has_few_shades():
    assert is_drawn(lines_of_text(TEXT))
    assert not is_drawn(noise())


@needs_recognition
@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Your mailbox has been suspended.\nVerify your account within 24 hours\nor you will lose access.", True),
        (CHARGE, True),
        ("A test of your filter:\nGTUBE-STANDARD-ANTI-" + "UBE-TEST-EMAIL", True),
        ("The GTUBE is a test line of spam filters.\nRead how to use it on our page.", False),
        ("Concert in the park\nSunday at 5 pm, free entry\nBring your family and a blanket.", False),
        ("Please update your calendar:\nthe office is closed on Friday.", False),
    ],
    ids=["lure", "callback", "test line", "about the test line", "poster", "notice"],
)
def test_a_picture_is_judged_by_its_text(text, held):
    frames = run_steps(Job(raw_of(lines_of_text(text)), envelope=Envelope("ada@north.example", ("bob@south.example",))))
    judgement = judge(Evidence(tuple(frame.report for frame in frames)), load_policy())
    assert (judgement.verdict is not Verdict.CLEAN) is held, judgement.summary
