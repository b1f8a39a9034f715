"""`mailwarden init`: what stops it is told in a sentence, it can be given again, and it never spoils a secret."""

import argparse
import pwd
import stat
from pathlib import Path

import pytest
from cryptography import x509

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.cli.config import check
from mailwarden.cli.init import _places
from mailwarden.cli.main import main
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.serving.tls import ABBY_NAME, server_context

NOBODY = "postgresql://mailwarden@127.0.0.1:9/none"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made"


def init(folder: Path, *words: str) -> int:
    return main(["init", str(folder), *words])


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--host", "mail.example"], "`mail.example` is no IP address; the names by which it is reached"),
        (["--abby-port", "99999"], "`99999` is no port"),
    ],
)
def test_an_invalid_listen_address_is_rejected(folder: Path, capsys: pytest.CaptureFixture[str], words, reported):
    with pytest.raises(SystemExit):
        init(folder, "--no-database", *words)
    assert reported in capsys.readouterr().err
    assert not folder.exists()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert init(tmp_path / "file" / "below", "--no-database") == 2
    assert capsys.readouterr().err == f"mailwarden: Cannot write {tmp_path}/file/below: Not a directory.\n"


def test_a_configuration_with_mistakes_is_not_made_and_the_command_can_be_given_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert init(folder, "--no-database", "--rspamd", "/run/rspamd.sock") == 2
    assert "engines.rspamd.address: `/run/rspamd.sock` is not an address" in capsys.readouterr().err
    assert init(folder, "--no-database", "--rspamd", "unix:/run/rspamd.sock", "--name", "mail.example") == 0
    assert check(folder) == []
    assert "mail.example" in names(folder, "abby")


def test_a_database_that_is_down_is_reported_with_the_next_steps(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert init(folder, "--database-url", NOBODY) == 2
    reported = capsys.readouterr().err
    assert "The database is down. ([Errno 111]" in reported
    assert f"`mailwarden database migrate --config {folder}`" in reported
    assert f"`mailwarden users setup-link --config {folder}`" in reported
    assert check(folder) == []


def test_services_read_the_configuration_and_own_their_state(folder: Path, tmp_path: Path):
    state, spool = tmp_path / "state", tmp_path / "spool"
    assert init(folder, "--no-database", "--state", str(state), "--spool", str(spool), "--user", "nobody") == 0
    nobody = pwd.getpwnam("nobody")
    assert check(folder) == []
    for place in (state, spool):
        found = place.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (nobody.pw_uid, 0o700)
    assert f'store: "{state}/quarantine"' in (folder / GUARD_PATH).read_text()
    private = {folder / "token", folder / "tls" / "ca.key"}
    for path in (folder, *folder.rglob("*")):
        found = path.stat()
        group = 0 if path in private else nobody.pw_gid
        mode = 0o600 if path in private else 0o750 if path.is_dir() else 0o640
        assert (path, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (path, 0, group, mode)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--user", "nobody"], "choose a --state outside the configuration"),
        (["--user", "no-such-user", "--state", "/tmp/elsewhere"], "this host has no such user"),
    ],
)
def test_a_user_that_cannot_own_the_state_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
):
    assert init(folder, "--no-database", *words) == 2
    assert error in capsys.readouterr().err
    assert not folder.exists()


def test_below_etc_state_and_spool_are_in_var():
    arguments = argparse.Namespace(state=None, spool=None, user=None)
    places = _places(Path("/etc/mailwarden"), arguments)
    assert (places.state, places.spool) == (Path("/var/lib/mailwarden"), Path("/var/spool/mailwarden"))


def test_secrets_and_certificates_that_are_there_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert init(folder, "--no-database") == 0
    kept = {path: path.read_bytes() for path in (*(folder / "secrets").iterdir(), *(folder / "tls").iterdir())}
    assert init(folder, "--no-database") == 2
    assert "already holds a configuration" in capsys.readouterr().err

    (folder / ABBY_PATH).unlink()
    (folder / GUARD_PATH).unlink()
    assert init(folder, "--no-database") == 0
    assert {path: path.read_bytes() for path in kept} == kept
    assert capsys.readouterr().out.count("is there and is kept") == 3


def test_keep_leaves_a_configuration_and_applies_migrations(
    folder: Path, database_url: str, capsys: pytest.CaptureFixture[str]
):
    assert init(folder, "--keep", "--database-url", NOBODY) == 2
    assert "Everything else is made" in capsys.readouterr().err
    for path in (ABBY_PATH, GUARD_PATH):
        text = (folder / path).read_text()
        (folder / path).write_text(text.replace(NOBODY, database_url))
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for _ in range(2):
        assert init(folder, "--keep", "--database-url", NOBODY) == 0
        shown = capsys.readouterr().out
        assert f"{folder} is there and is kept" in shown
        assert "migrations applied" in shown
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


def test_certificates_are_renewed_by_the_same_authority(folder: Path):
    assert init(folder, "--no-database", "--name", "mail.example") == 0
    before = {program: names(folder, program) for program in ("abby", "guard")}
    assert before["abby"] == [ABBY_NAME, *before["guard"]], "guards know abby by this name, and guard has none like it"
    authority, old = (folder / "tls" / "ca.crt").read_bytes(), (folder / "tls" / "abby.crt").read_bytes()
    assert init(folder, "--renew", "--name", "second.example") == 0

    assert (folder / "tls" / "ca.crt").read_bytes() == authority
    assert (folder / "tls" / "abby.crt").read_bytes() != old
    ca = x509.load_pem_x509_certificate(authority)
    for program in ("abby", "guard"):
        assert names(folder, program) == [*before[program], "second.example"]
        new = x509.load_pem_x509_certificate((folder / "tls" / f"{program}.crt").read_bytes())
        new.verify_directly_issued_by(ca)
        key = folder / "tls" / f"{program}.key"
        server_context(folder / "tls" / f"{program}.crt", key, folder / "tls" / "ca.crt")
        assert key.stat().st_mode & 0o777 == 0o600


def test_where_there_is_no_authority_nothing_is_signed(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert init(folder, "--renew") == 2
    assert "has no authority" in capsys.readouterr().err


def test_the_key_of_the_authority_can_stay_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    safe, second = tmp_path / "safe", tmp_path / "second"
    assert init(folder, "--no-database", "--ca-folder", str(safe)) == 0
    assert f"the authority's key is {safe}/ca.key" in capsys.readouterr().out
    assert not list(folder.rglob("ca.key"))
    authority = {path: path.read_bytes() for path in safe.iterdir()}
    assert init(second, "--no-database", "--ca-folder", str(safe)) == 0, "a second host has the same authority"
    assert (second / "tls" / "ca.crt").read_bytes() == (folder / "tls" / "ca.crt").read_bytes()

    assert init(folder, "--renew") == 2
    assert "--ca-folder" in capsys.readouterr().err
    assert init(folder, "--renew", "--ca-folder", str(safe), "--name", "third.example") == 0
    assert "third.example" in names(folder, "guard")
    assert {path: path.read_bytes() for path in safe.iterdir()} == authority, "the authority is never written over"


def test_an_authority_of_another_deployment_signs_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert init(folder, "--no-database", "--ca-folder", str(tmp_path / "safe")) == 0
    assert init(tmp_path / "other", "--no-database", "--ca-folder", str(tmp_path / "unsafe")) == 0
    before = {path: path.read_bytes() for path in (folder / "tls").iterdir()}
    assert init(folder, "--renew", "--ca-folder", str(tmp_path / "unsafe")) == 2
    assert "is not the authority in" in capsys.readouterr().err
    (tmp_path / "unsafe" / "ca.key").unlink()
    assert init(tmp_path / "third", "--no-database", "--ca-folder", str(tmp_path / "unsafe")) == 2
    assert not (tmp_path / "unsafe" / "ca.key").exists(), "half an authority is not completed with another key"
    assert init(tmp_path / "fourth", "--no-database", "--ca-folder", str(tmp_path / "fourth" / "ca")) == 2
    assert "is inside" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (folder / "tls").iterdir()} == before


def names(folder: Path, program: str) -> list[str]:
    certificate = x509.load_pem_x509_certificate((folder / "tls" / f"{program}.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]
