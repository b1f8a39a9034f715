"""TLS files that cannot be used: which one, and what is wrong with it; and what a reload replaces."""

import shutil
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mailwarden.cli.certificates import make_certificates
from mailwarden.errors import ConfigurationError
from mailwarden.serving.tls import ServerTls, client_context, server_context


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


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Run a handshake in memory until both sides are content; raise the error of either side."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    sides = [calling, server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(10):
        for side in tuple(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert sides == []


def client_of(folder: Path) -> ssl.SSLContext:
    return client_context(folder / "ca.crt", folder / "abby.crt", folder / "abby.key")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_reload_replaces_the_certificate_and_the_ca_of_clients(tmp_path: Path, version: ssl.TLSVersion):
    old, new, used = (tmp_path / name for name in ("old", "new", "used"))
    for folder in (old, new):
        make_certificates(folder, ["localhost"])
    shutil.copytree(old, used)
    tls = ServerTls(lambda: server_context(used / "guard.crt", used / "guard.key", used / "ca.crt"))
    before, after, foreign = client_of(old), client_of(new), client_of(old)
    foreign.load_verify_locations(new / "ca.crt")  # accepts both servers, and has a certificate of the old CA
    for context in (before, after, foreign):
        context.maximum_version = version

    shake_hands(before, tls.context)
    shake_hands(foreign, tls.context)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(after, tls.context)

    shutil.copytree(new, used, dirs_exist_ok=True)
    shake_hands(before, tls.context)  # the files count after the reload
    tls.reload()
    shake_hands(after, tls.context)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(before, tls.context)
    with pytest.raises(ssl.SSLError, match=r"verify failed|unknown ca"):
        shake_hands(foreign, tls.context)
