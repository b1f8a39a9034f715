"""The demo: seeded through the product, a login by a click on this host alone, and nothing left at its end."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from workshop.rig.demo import demo_words
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]

STORIES = Path(__file__).parents[1] / "samples" / "demo"
DATABASE = "mailwarden_demo_test"
PATIENCE = 60.0
USER = re.compile(r'name="user" value="([^"]+)">\s*<button[^>]*>(.*?)</button>', re.DOTALL)
CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@dataclass(frozen=True)
class RunningDemo:
    folder: Path
    url: str
    words: list[str]
    process: subprocess.Popen[str]
    printed: str

    def session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env, session.verify = False, str(self.folder / "config/tls/ca.crt")
        return session

    def log_in(self, who: str, headers: dict[str, str] | None = None) -> tuple[requests.Session, requests.Response]:
        """Click on a user of the first screen; the fields go along with the click alone."""
        session = self.session()
        first = session.get(f"{self.url}/console/login", timeout=PATIENCE).text
        [uid] = [uid for uid, text in USER.findall(first) if who in text]
        form = {"user": uid, "csrf": str(CSRF.findall(first)[0])}
        return session, session.post(
            f"{self.url}/console/login/demo", data=form, headers=headers, timeout=PATIENCE, allow_redirects=False
        )


@pytest.fixture(scope="module")
def demo(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    folder, port = tmp_path_factory.mktemp("demo") / "deployment", free_port()
    words = [sys.executable, "-m", "mailwarden", *demo_words(folder, engines)]
    words += ["--stories", str(STORIES), "--database", DATABASE, "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "Ctrl-C stops" in line:
            break
    assert process.poll() is None, printed
    yield RunningDemo(folder, f"https://localhost:{port}", words, process, printed)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    process.stdout.close()


def page(demo: RunningDemo, session: requests.Session, path: str) -> str:
    answer = session.get(demo.url + path, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_everything_of_the_stories_was_possible(demo: RunningDemo) -> None:
    assert "left out" not in demo.printed
    assert "14 messages and 4 actions" in demo.printed
    assert f"{demo.url}/console/" in demo.printed


def test_a_click_logs_in_and_every_page_says_demo(demo: RunningDemo) -> None:
    session, answer = demo.log_in("olga.admin")
    assert answer.status_code == 303
    for path in ("/console/", "/console/messages", "/console/quarantine", "/console/health", "/console/account"):
        text = page(demo, session, path)
        assert "Demo with made-up mail. Nothing here is real." in text
        assert "· Mailwarden Demo</title>" in text
        assert "mark_demo.svg" in text
    assert "Demo with made-up mail" in page(demo, demo.session(), "/console/login")


@pytest.mark.parametrize(
    "headers", [{"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}, {"Host": "mail.example"}]
)
def test_no_click_counts_that_a_proxy_passed_on(demo: RunningDemo, headers: dict[str, str]) -> None:
    session, answer = demo.log_in("olga.admin", headers)
    assert answer.status_code == 403
    refused = session.get(f"{demo.url}/console/login", headers=headers, timeout=PATIENCE)
    assert refused.status_code == 403
    assert not USER.findall(refused.text)


def test_a_user_has_the_rights_of_the_role_alone(demo: RunningDemo) -> None:
    session, _ = demo.log_in("ann.lee")
    assert "Bay Clinic" not in page(demo, session, "/console/messages?range=30d")
    assert session.get(f"{demo.url}/console/health", timeout=PATIENCE).status_code == 403


def test_the_usual_login_is_not_there(demo: RunningDemo) -> None:
    session = demo.session()
    answer = session.post(f"{demo.url}/console/login", data={"name": "olga.admin", "password": ""}, timeout=PATIENCE)
    assert answer.status_code in (404, 405)


def test_the_stories_are_in_the_console(demo: RunningDemo) -> None:
    session, _ = demo.log_in("olga.admin")
    undecided = page(demo, session, "/console/messages?q=is:undecided&range=30d")
    assert "Bill during the outage" in undecided
    assert page(demo, session, "/console/messages?q=subject:outage&range=30d").count("Bill during the outage") > 1
    held = page(demo, session, "/console/quarantine")
    assert "Your parcel" in held
    assert "News of the day" not in held
    assert "News of the day" in page(demo, session, "/console/quarantine?state=released")
    assert "Your mailbox expires" in page(demo, session, "/console/cases?state=closed")
    assert "waits for approval" in page(demo, session, "/console/lists/feeds")
    audit = page(demo, session, "/console/audit")
    assert "quarantine.release" in audit
    assert "cases.close" in audit


def test_a_second_start_says_that_one_is_running(demo: RunningDemo) -> None:
    second = subprocess.run(demo.words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert second.returncode == 2
    assert f"A demo is running already at {demo.url}" in second.stderr


def test_the_end_leaves_nothing(demo: RunningDemo, engines: Engines) -> None:
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE) == 0
    assert not demo.folder.exists()
    databases = engines.postgresql.execute(f"SELECT count(*) FROM pg_database WHERE datname = '{DATABASE}'")
    assert databases.strip() == "0"
