"""`mailwarden engines` installs missing settings, keeps every file of the operator, and can be repeated."""

import shutil
from pathlib import Path

import pytest

from mailwarden.cli.engines import parameters, parse_services
from mailwarden.cli.main import main
from tests.conventions.project_files import ROOT

DEPLOY = ROOT / "deploy"
MAIN = "compatibility_level = 3.6\nmyhostname = mx.company.example\nmailbox_size_limit = 0\n"
MASTER = "smtp      inet  n       -       y       -       -       smtpd\npickup unix n - y 60 1 pickup\n"
needs_postfix = pytest.mark.skipif(shutil.which("postconf", path="/usr/sbin:/usr/bin") is None, reason="no Postfix")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("rspamd", "clamav", "unbound", "postfix"):
        (tmp_path / "etc" / name).mkdir(parents=True)
    (tmp_path / "etc/postfix/main.cf").write_text(MAIN)
    (tmp_path / "etc/postfix/master.cf").write_text(MASTER)
    return tmp_path


def engines(host: Path, action: str, *names: str) -> int:
    return main(["engines", action, *names, "--from", str(DEPLOY), "--root", str(host)])


def contents(host: Path) -> dict[str, str]:
    return {str(path.relative_to(host)): path.read_text() for path in host.rglob("*") if path.is_file()}


def test_install_writes_every_shipped_file(host: Path) -> None:
    assert engines(host, "check") == 1
    assert engines(host, "install") == 0
    written = contents(host)
    assert written["etc/rspamd/local.d/options.inc"] == (DEPLOY / "rspamd/options.inc").read_text()
    assert "etc/clamav/mailwarden.conf" in written
    assert "etc/systemd/system/clamav-daemon.service.d/mailwarden.conf" in written
    assert "etc/unbound/unbound.conf.d/mailwarden.conf" in written
    assert engines(host, "check") == 0


@needs_postfix
@pytest.mark.parametrize("way", ["postfix-before-queue", "postfix-after-queue"])
def test_install_can_be_repeated(host: Path, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert engines(host, "install", "rspamd", way) == 0
    before = contents(host)
    capsys.readouterr()
    assert engines(host, "install", "rspamd", way) == 0
    assert contents(host) == before
    assert "installed" not in capsys.readouterr().out


def test_install_keeps_a_changed_file(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = host / "etc/rspamd/local.d/options.inc"
    own.parent.mkdir()
    own.write_text("max_message = 1;\n")
    assert engines(host, "install", "rspamd") == 1
    assert own.read_text() == "max_message = 1;\n"
    assert f"diff {own} " in capsys.readouterr().out
    assert (own.parent / "greylist.conf").exists()


@needs_postfix
def test_postfix_gets_the_shipped_settings(host: Path) -> None:
    assert engines(host, "install", "postfix-before-queue") == 0
    main_cf = parameters((host / "etc/postfix/main.cf").read_text())
    assert main_cf["myhostname"] == "mx.company.example"
    assert main_cf["message_size_limit"] == "53477376"
    services = {each.name: each for each in parse_services((host / "etc/postfix/master.cf").read_text())}
    shipped = {each.name: each for each in parse_services((DEPLOY / "postfix/before-queue/master.cf").read_text())}
    assert services["smtp/inet"].options == shipped["smtp/inet"].options
    assert services["127.0.0.1:10026/inet"].options == shipped["127.0.0.1:10026/inet"].options
    assert "pickup/unix" in services


@needs_postfix
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("main.cf", "message_size_limit = 1000\n"),
        ("master.cf", "127.0.0.1:10026 inet n - n - - smtpd\n  -o content_filter=amavis\n"),
    ],
)
def test_postfix_with_other_settings_stays_unchanged(host: Path, file: str, line: str) -> None:
    with (host / "etc/postfix" / file).open("a") as settings:
        settings.write(line)
    before = contents(host)
    assert engines(host, "install", "postfix-before-queue") == 1
    assert contents(host) == before


@needs_postfix
def test_postfix_with_postscreen_stays_unchanged(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (host / "etc/postfix/master.cf").write_text(MASTER.replace("smtpd\n", "postscreen\n"))
    before = contents(host)
    assert engines(host, "install", "postfix-after-queue") == 1
    assert contents(host) == before
    assert "it runs postscreen" in capsys.readouterr().out


@needs_postfix
def test_remove_takes_guard_out_of_the_mail_flow(host: Path) -> None:
    before = contents(host)
    engines(host, "install", "rspamd", "clamav", "unbound", "postfix-after-queue")
    own = host / "etc/rspamd/local.d/greylist.conf"
    own.write_text("enabled = false; # ours\n")
    engines(host, "remove", "rspamd", "clamav", "unbound", "postfix-after-queue")
    after = contents(host)
    assert set(after) == {*before, "etc/rspamd/local.d/greylist.conf"}
    services = parse_services(after["etc/postfix/master.cf"])
    assert [(each.name, each.options) for each in services] == [("smtp/inet", {}), ("pickup/unix", {})]
    assert after["etc/postfix/main.cf"].startswith(MAIN)


def test_an_unknown_engine_is_an_error(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        engines(host, "install", "exim")
    assert "`exim` is none of rspamd, clamav, unbound" in capsys.readouterr().err
