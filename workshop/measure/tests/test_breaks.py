"""`make check-long ONLY=breaks` gives its tests a checkout that every user can read."""

from pathlib import Path

import pytest

from workshop.measure import breaks


def test_another_user_can_read_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modes = []

    def note_mode(checkout: Path, _planned: breaks.Break) -> breaks.Outcome:
        modes.append(checkout.parent.stat().st_mode & 0o777)
        return breaks.Outcome(caught=True, text="caught")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(breaks, "try_break", note_mode)
    assert breaks.main(["--only", "a worker may open"]) == 0
    assert modes == [0o755]
