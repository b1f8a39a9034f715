"""Good configuration is read, and bad configuration is refused with every mistake at its line."""

from pathlib import Path

import pytest

from mailwarden.abby.config import AbbyConfig
from mailwarden.guard.config import GuardConfig
from mailwarden.settings.reader import Mistake, Mistakes, read
from tests.tables import every

HERE = Path(__file__).parent
KINDS: dict[str, type[AbbyConfig | GuardConfig]] = {"abby": AbbyConfig, "guard": GuardConfig}


def kind_of(file: Path) -> type[AbbyConfig | GuardConfig]:
    return KINDS[file.name.partition("-")[0]]


def name_of(file: Path) -> str:
    return file.stem


@pytest.mark.parametrize("file", sorted((HERE / "good").glob("*.yml")), ids=name_of)
def test_a_good_file_is_read(file: Path) -> None:
    assert isinstance(read(file, kind_of(file)), kind_of(file))


def test_a_bad_file_is_refused_with_every_mistake_at_its_line() -> None:
    def check(file: Path) -> None:
        with pytest.raises(Mistakes) as caught:
            read(file, kind_of(file))
        expected = sorted(file.with_suffix(".txt").read_text("utf-8").splitlines())
        found = sorted(map(line_of, caught.value.mistakes))
        assert len(found) == len(expected), "\n".join(found)
        for mistake, fragment in zip(found, expected, strict=True):
            assert mistake.startswith(fragment), f"{mistake}\ndoes not begin with\n{fragment}"

    every(sorted((HERE / "bad").glob("*.yml")), check, name_of)


def line_of(mistake: Mistake) -> str:
    return f"{mistake.line} {mistake.key}: {mistake.problem}" if mistake.key else f"{mistake.line} {mistake.problem}"
