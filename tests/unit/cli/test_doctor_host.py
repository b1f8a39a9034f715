"""The lines of the doctor about phrases, units, text recognition and the journal."""

from pathlib import Path

import pytest

from mailwarden.analysis.text.phrases import Books, PhraseBook, load_books
from mailwarden.cli.doctor.host import look_at_journal, look_at_phrases, look_at_units, recognition_line
from mailwarden.files import text_recognition
from mailwarden.journal.losses import LOSSES, Loss, Losses
from mailwarden.telemetry.metrics import Metrics

ALL, ABBY, GUARD = "mailwarden-all.service", "mailwarden-abby.service", "mailwarden-guard.service"


def test_phrases_with_their_database_are_well():
    line = look_at_phrases(load_books())
    assert (line.state, line.name) == ("ok", "phrases")
    assert line.seen.endswith("phrases in a database of Vectorscan"), "run `mailwarden compile`"


@pytest.mark.parametrize("database", [b"", b"damaged"], ids=["missing", "damaged"])
def test_phrases_without_a_usable_database_are_a_warning(database: bytes):
    line = look_at_phrases(PhraseBook(Books(load_books().phrases, database)))
    assert line.state == "warn"
    assert "mailwarden compile" in line.remedy


def enable(folder: Path, *units: str) -> Path:
    for unit in units:
        (folder / unit).symlink_to(f"/lib/systemd/system/{unit}")  # the unit itself is not on every host
    return folder


@pytest.mark.parametrize("units", [(ALL,), (ABBY, GUARD), (GUARD,)])
def test_one_kind_of_units_is_well(tmp_path: Path, units: tuple[str, ...]):
    line = look_at_units(enable(tmp_path, *units))
    assert line is not None
    assert (line.state, line.seen) == ("ok", f"enabled: {', '.join(units)}")


@pytest.mark.parametrize("separate", [(ABBY, GUARD), (GUARD,)])
def test_both_kinds_of_units_fail(tmp_path: Path, separate: tuple[str, ...]):
    line = look_at_units(enable(tmp_path, ALL, *separate))
    assert line is not None
    assert line.state == "FAIL"
    assert line.remedy == f"systemctl disable {' '.join(separate)}, or systemctl disable {ALL}"


def test_a_host_without_units_has_no_line(tmp_path: Path):
    assert look_at_units(tmp_path) is None
    assert look_at_units(tmp_path / "missing") is None


def test_missing_text_recognition_is_no_problem(monkeypatch):
    monkeypatch.setattr(text_recognition, "_library", lambda: None)
    line = recognition_line()
    assert (line.state, line.seen) == ("ok", "not read: the optional package tesseract-ocr is not installed")


@pytest.mark.skipif(not text_recognition.languages(), reason="text recognition is an optional package")
def test_text_recognition_shows_its_version_and_models():
    assert "read by Tesseract 5" in recognition_line().seen


def test_lost_rows_of_history_are_a_mistake_for_a_week(tmp_path: Path) -> None:
    assert look_at_journal(tmp_path / "missing", 1_000).state == "ok"
    losses = Losses(tmp_path, Metrics())
    losses.add(Loss.DROPPED, 12)
    losses.save()
    line = look_at_journal(tmp_path, 1_000)
    assert line.state == "FAIL"
    assert "12 dropped, 0 damaged, 0 rejected" in line.seen
    (tmp_path / LOSSES).write_text(f"{12:020d} {0:020d} {0:020d} {1_700_000_000:020d}\n")
    assert look_at_journal(tmp_path, 1_000).state == "ok"


def test_a_journal_that_is_half_full_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / f"{1:020d}.journal").write_bytes(b"x" * 600)
    assert look_at_journal(tmp_path, 1_000).state == "warn"
