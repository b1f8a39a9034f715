"""The vault that the configuration names: a folder, or a bucket with its credentials."""

from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import ConfigurationError, StorageUnavailable
from mailwarden.quarantine.settings import GuardQuarantine
from mailwarden.quarantine.vault import open_vault
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Quarantine

KEY = KeyRing.of(b"k" * 64)


async def test_a_folder_is_made_when_it_is_used(tmp_path: Path):
    vault = open_vault(Quarantine(), tmp_path, KEY)
    assert not (tmp_path / "quarantine").exists()
    await vault.uid()
    assert (tmp_path / "quarantine" / "vault").is_file()


def test_a_bucket_needs_two_lines_of_credentials(tmp_path: Path):
    settings = Quarantine(store="s3://held/mail", endpoint="http://127.0.0.1:1", credentials="s3")
    with pytest.raises(ConfigurationError, match="cannot read"):
        open_vault(settings, tmp_path, KEY)
    (tmp_path / "s3").write_text("only-one\n")
    with pytest.raises(ConfigurationError, match="two lines"):
        open_vault(settings, tmp_path, KEY)


@pytest.mark.slow
async def test_an_unreachable_store_raises_storage_unavailable(tmp_path: Path):
    (tmp_path / "s3").write_text("id\nsecret\n")
    settings = Quarantine(store="s3://held/mail", endpoint="http://127.0.0.1:1", credentials="s3")
    with pytest.raises(StorageUnavailable):
        await open_vault(settings, tmp_path, KEY).put(uuid4(), Spooled.of(b"x"))


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (Quarantine(), []),
        (Quarantine(store="s3://bucket/prefix", endpoint="https://s3.example"), []),
        (Quarantine(store=""), ["store"]),
        (Quarantine(store="s3://"), ["store"]),
        (Quarantine(store="gs://bucket"), ["store"]),
        (Quarantine(endpoint="s3.example"), ["endpoint"]),
        (GuardQuarantine(release_to="nowhere"), ["releaseTo"]),
        (GuardQuarantine(release_to="mx.example:25"), []),
    ],
)
def test_invalid_settings_are_reported(settings: Quarantine, keys: list[str]):
    assert [key for key, _ in settings.mistakes()] == keys
