"""`mailwarden scan` against a running product; what the docs show of it is what it prints."""

import io
import json
import re
from email.utils import formatdate
from pathlib import Path

import pytest

from mailwarden.cli.main import main
from mailwarden.cli.scan import TOKEN_VARIABLE
from tests.acceptance.deployment import Deployment

EXAMPLE = Path("docs/examples/minutes.eml")
PAGE = Path("docs/how-a-verdict-is-made.md")
MTA = ["--ip", "203.0.113.77", "--helo", "mail.north-accounts.example"]


@pytest.fixture(autouse=True)
def token(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, deployment.tokens["everything"])


def scan(deployment: Deployment, *words: str) -> int:
    return main(["scan", *words, "--url", deployment.product.url, "--ca", str(deployment.product.ca)])


def test_the_docs_show_the_output_of_the_command(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    # Rspamd dislikes what is old, so the example is of today.
    today = tmp_path / "today.eml"
    today.write_bytes(re.sub(rb"Date: [^\r]+", b"Date: " + formatdate().encode(), EXAMPLE.read_bytes()))
    assert scan(deployment, str(today), *MTA) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("decision  quarantine: phishing under the profile balanced\nverdict   phishing\n")
    reported = printed[printed.index("Phishing: ") :].strip()
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert reported == shown[1]


def test_every_rule_is_printed_on_request(deployment: Deployment, capsys: pytest.CaptureFixture[str]):
    assert scan(deployment, str(EXAMPLE), *MTA, "--rules") == 0
    _, _, rules = capsys.readouterr().out.partition("All rules:\n")
    assert "   +45  phishing    html.link-mismatch: Link text shows files.acme.example" in rules
    assert "    +0  spoof       authentication.unaligned: Not authenticated" in rules


def test_the_exit_code_is_the_decision_and_json_has_all_fields(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
):
    assert scan(deployment, str(EXAMPLE), *MTA, "--exit-code", "-o", "json") != 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["verdict"], reported["explanation"]["verdict"]) == ("phishing", "phishing")


def test_a_message_is_read_from_standard_input(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(EXAMPLE.read_bytes())))
    assert scan(deployment, "-", *MTA) == 0
    assert "verdict   phishing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere.eml", "Cannot read"), ("empty.eml", "is empty"), ("nobody.eml", "names no recipient")]
)
def test_an_unreadable_file_is_reported_in_one_line(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, said: str
):
    (tmp_path / "empty.eml").write_bytes(b"")
    (tmp_path / "nobody.eml").write_bytes(b"Subject: x\r\n\r\nhi\r\n")
    assert scan(deployment, str(tmp_path / name)) != 0
    assert said in capsys.readouterr().err
