"""Key rings: what was made with an old key is opened and verified, and a lost key is named."""

from pathlib import Path

import pytest

from mailwarden.crypto.keyring import BrokenSeal, Key, KeyRing, UnknownKey, read_ring, ring_text
from mailwarden.crypto.mac import SIZE, Mac
from mailwarden.crypto.seal import Seal
from mailwarden.errors import ConfigurationError

OLD, NEW = KeyRing.of(b"o" * 64), KeyRing.of(b"n" * 64)
BOTH = KeyRing.of(b"n" * 64, b"o" * 64)


def test_an_old_key_opens_and_the_current_one_seals():
    sealed = Seal(OLD, b"test").close(b"secret", b"mine")
    seal = Seal(BOTH, b"test")
    assert seal.open(sealed, b"mine") == b"secret"
    assert not seal.is_current(sealed)
    renewed = seal.close(seal.open(sealed, b"mine"), b"mine")
    assert seal.is_current(renewed)
    assert Seal(NEW, b"test").open(renewed, b"mine") == b"secret"


def test_a_lost_key_is_named_and_is_no_other_failure():
    sealed = Seal(OLD, b"test").close(b"secret", b"mine")
    with pytest.raises(UnknownKey, match=OLD.current.name):
        Seal(NEW, b"test").open(sealed, b"mine")
    with pytest.raises(BrokenSeal) as caught:
        Seal(OLD, b"test").open(sealed, b"another's")
    assert not isinstance(caught.value, UnknownKey)


def test_the_id_of_a_key_cannot_be_exchanged():
    sealed = Seal(OLD, b"test").close(b"secret", b"mine")
    forged = sealed[:1] + NEW.current.key_id + sealed[5:]
    with pytest.raises(BrokenSeal):
        Seal(BOTH, b"test").open(forged, b"mine")


def test_macs_of_old_keys_verify_and_others_do_not():
    signed = Mac(OLD, b"test").sign(b"data")
    both = Mac(BOTH, b"test")
    assert len(signed) == SIZE
    assert both.verify(b"data", signed)
    assert signed in both.candidates(b"data")
    assert both.sign(b"data") == Mac(NEW, b"test").sign(b"data") == both.candidates(b"data")[0]
    assert not Mac(NEW, b"test").verify(b"data", signed)
    assert not Mac(NEW, b"test").knows(signed)
    for wrong in (b"", signed[:-1], signed + b"\0", signed[:4], NEW.current.key_id + signed[4:]):
        assert not both.verify(b"data", wrong)
    assert not both.verify(b"Data", signed)
    assert not Mac(BOTH, b"another purpose").verify(b"data", signed)


def test_a_file_is_read_as_it_was_written(tmp_path: Path):
    keys = [Key.of(b"a" * 64, made="2026-11-16"), Key.of(b"b" * 64, made="2025-01-01", retired="2026-11-16")]
    (tmp_path / "ring").write_text(ring_text(keys))
    ring = read_ring(tmp_path / "ring", "contents.key")
    assert list(ring.keys) == keys
    assert ring.current is ring.keys[0]


def test_one_line_of_hex_digits_is_a_ring(tmp_path: Path):
    (tmp_path / "ring").write_text("f" * 64 + "\n")
    assert read_ring(tmp_path / "ring", "contents.key").current.secret == b"f" * 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "fewer than 32 characters, or none"),
        ("# nothing but a comment\n", "or none"),
        ("short\n", "fewer than 32"),
        ("a" * 64 + "\nshort\n", "fewer than 32"),
        ("a" * 64 + "\n" + "a" * 64 + "\n", "the same key twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake(tmp_path: Path, text: str, problem: str):
    (tmp_path / "ring").write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        read_ring(tmp_path / "ring", "contents.key")


def test_a_missing_file_must_be_restored_not_created(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="Restore it from your backup"):
        read_ring(tmp_path / "ring", "contents.key")
    (tmp_path / "ring").write_bytes(b"\xff\xfe" * 40)
    with pytest.raises(ConfigurationError, match="is not text"):
        read_ring(tmp_path / "ring", "contents.key")
