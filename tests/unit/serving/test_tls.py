"""TLS files that cannot be used: which one, and what is wrong with it."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mailwarden.cli.certificates import make_certificates
from mailwarden.errors import ConfigurationError
from mailwarden.serving.tls import client_context, server_context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certificates(tmp_path, ["localhost"])
    return tmp_path


def problem(folder: Path, certificate: str = "guard.crt", key: str = "guard.key", ca: str = "ca.crt") -> str:
    with pytest.raises(ConfigurationError) as caught:
        server_context(folder / certificate, folder / key, folder / ca)
    return caught.value.message.replace(f"{folder}/", "")


def test_a_file_that_is_not_there_is_named(folder: Path):
    assert problem(folder, certificate="gone.crt") == "tls: gone.crt cannot be read (No such file or directory)."
    assert problem(folder, key="gone.key") == "tls: gone.key cannot be read (No such file or directory)."
    assert problem(folder, ca="gone.crt") == "tls: gone.crt cannot be read (No such file or directory)."


def test_a_key_of_another_certificate_is_reported(folder: Path):
    assert problem(folder, key="abby.key") == "tls: abby.key is not the key of guard.crt."


def test_an_invalid_certificate_is_reported(folder: Path):
    (folder / "other").write_text("not PEM")
    assert "other and guard.key are not a certificate" in problem(folder, certificate="other")
    assert "other is not a certificate authority" in problem(folder, ca="other")
    with pytest.raises(ConfigurationError):
        client_context(folder / "other")


def test_an_encrypted_key_is_reported_without_a_prompt(folder: Path):
    key = serialization.load_pem_private_key((folder / "guard.key").read_bytes(), None)
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    (folder / "guard.key").write_bytes(sealed)
    assert "without a password" in problem(folder)
