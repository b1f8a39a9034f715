"""Reading a YAML file: its limits, its secrets, and the place of a mistake."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from mailwarden.settings.document import MAX_BYTES
from mailwarden.settings.reader import Mistakes, read


class Door(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    width: float = 1.0
    lock_code: str = ""


class House(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    doors: tuple[Door, ...] = ()
    rooms: dict[str, int] = {}


class Gate(Struct, frozen=True, forbid_unknown_fields=True):
    width: float = 1.0
    height: float = 1.0

    def is_wider_than(self, width: float) -> bool:
        return self.width > width

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.is_wider_than(self.height):
            yield "width", "must not be more than the height"


def problems(file: Path, text: str | bytes) -> str:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Mistakes) as caught:
        read(file, House)
    return caught.value.message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "house.yml"


def test_numbers_and_texts_of_every_writing_are_read(file: Path) -> None:
    file.write_text("\ufeffdoors:\n- {width: 1.5, lockCode: '12'}\n- width: 2\n  lockCode: |-\n    abc\n")
    assert read(file, House) == House((Door(1.5, "12"), Door(2.0, "abc")))
    file.write_text("rooms: {kitchen: 1_000, hall: 0x10}\ndoors:\n- width: 12e-1\n")
    assert read(file, House) == House((Door(1.2),), {"kitchen": 1000, "hall": 16})


def test_an_empty_file_is_an_empty_record(file: Path) -> None:
    file.write_text("")
    assert read(file, House) == House()


def test_a_mistake_has_file_line_and_key(file: Path) -> None:
    assert problems(file, "doors:\n- width: 1\n- widht: 2\n") == (
        f"{file}:3: doors[1].widht: unknown key; did you mean `width`?"
    )


def test_the_rules_of_a_record_may_call_its_methods(file: Path) -> None:
    file.write_text("width: 2\n")
    with pytest.raises(Mistakes, match="width: must not be more than the height"):
        read(file, Gate)
    file.write_text("width: 2\nheight: wide\n")
    with pytest.raises(Mistakes, match="height: must be a decimal number") as caught:
        read(file, Gate)
    assert len(caught.value.mistakes) == 1, "a rule is skipped if it needs a wrong field"


def test_a_mistake_in_a_mapping_of_free_keys_has_its_key(file: Path) -> None:
    assert f"{file}:2: rooms.hall: must be a whole number, not text" in problems(file, "rooms:\n  hall: big\n")


def test_a_file_that_is_missing_or_a_folder_is_a_sentence(file: Path, tmp_path: Path) -> None:
    for path, text in ((file, "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(Mistakes, match=f"cannot be read: {text}"):
            read(path, House)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"doors: []\n\xff", ":2: is not UTF-8"),
        (b"doors: []\nrooms: \x01", ":2: not YAML: a control character"),
        (b"#" * (MAX_BYTES + 1), ":1: is larger than 262,144 bytes"),
        (b"doors: " + b"[" * 5000, ":1: is nested more than 32 levels deep"),
        (b"doors: [", "not YAML"),
        (b"\x00", "not YAML"),
        (b"1: 2\n? [a, b]\n: 3\n", "unknown key"),
        (b"just text", "must be a mapping of keys to values, not text"),
    ],
)
def test_a_file_that_is_no_document_is_refused_at_its_line(file: Path, raw: bytes, text: str) -> None:
    assert text in problems(file, raw)


@pytest.mark.parametrize(
    "text",
    [
        "doors: hunter2\n",
        "doors:\n- hunter2\n",
        "doors:\n- lockCode: {hunter2: 1}\n  lockCode: x\n",
        "doors:\n- lockCode: hunter2\n  lockCode: hunter2\n",
        "doors:\n- lockCode: [hunter2]\n",
        "rooms: hunter2\n",
    ],
)
def test_errors_show_no_secret_values(file: Path, text: str) -> None:
    assert "hunter2" not in problems(file, text)


def test_the_worst_file_within_the_limit_is_answered_in_seconds(file: Path) -> None:
    began = time.perf_counter()
    assert "alias" in problems(file, "a: &a 1\nb: [" + "*a," * 20_000 + "]\n")
    assert time.perf_counter() - began < 10
