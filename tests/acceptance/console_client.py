"""A person at the console: a browser's cookie and forms, without a browser."""

import json
import re
import time
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlencode

import pyotp

from tests.acceptance.client import Answer, Client
from tests.acceptance.deployment import Deployment, run_command

COOKIE = "__Host-mailwarden"
PASSWORD = "correct horse battery"
FORM = "application/x-www-form-urlencoded"
_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
_SECRET = re.compile(r'id="secret">([A-Z2-7]+)<')


@dataclass
class Person:
    """A user who opens pages and sends forms; cookies are kept as in a browser."""

    client: Client
    name: str = ""
    password: str = PASSWORD
    secret: str = ""
    cookie: str | None = None
    codes: list[str] = field(default_factory=list)
    last_step: int = 0

    def get(self, path: str, **headers: str) -> Answer:
        return self._keep(self.client.call("GET", path, headers={**self._cookies, **headers}))

    def post(self, path: str, csrf: str | None = None, /, **fields: object) -> Answer:
        """Send a form; without a token it is that of the session's own page."""
        given = {"csrf": self.token() if csrf is None else csrf, **fields}
        data = urlencode(given, doseq=True).encode()
        headers = {"Content-Type": FORM, **self._cookies}
        return self._keep(self.client.call("POST", path, headers=headers, data=data))

    def token(self, path: str = "/console/account") -> str:
        """Return the CSRF token that stands on a page."""
        return token_in(self.get(path))

    def follow(self, answer: Answer) -> Answer:
        assert answer.status == 303, text_of(answer)
        return self.get(answer.headers["Location"])

    def set_up(self, link: str, name: str) -> Answer:
        """Follow a setup link to the end, with an authenticator; return the page of recovery codes."""
        self.name, self.last_step = name, 0
        page = self.follow(self.get("/console/setup/" + link.rpartition("/")[2]))
        chosen = self.post("/console/setup", token_in(page), name=name, password=self.password, repeated=self.password)
        page = self.follow(chosen)
        self.secret = secret_in(page)
        done = self.post("/console/setup/factor", token_in(page), code=self.code())
        page = self.follow(done)
        self.codes = re.findall(r"[0-9a-z]{4}(?:-[0-9a-z]{4}){3}", text_of(page))
        return page

    def log_in(self) -> Answer:
        """Sign in with the password and a code; return the last answer, which leads to the page wanted."""
        answer = self.give_password(self.password)
        assert answer.status == 303, answer.body.decode()
        return self.post("/console/login/code", self.token("/console/login/code"), code=self.code())

    def give_password(self, password: str, name: str | None = None) -> Answer:
        fields = {"name": self.name if name is None else name, "password": password}
        return self.post("/console/login", self.token("/console/login"), **fields)

    def code(self) -> str:
        """Return a code that was not used before: of this step or the next, or else a recovery code, not to wait."""
        step = max(int(time.time()) // 30, self.last_step + 1)
        if step > int(time.time()) // 30 + 1:
            return self.codes.pop()
        self.last_step = step
        return pyotp.TOTP(self.secret).at(step * 30)

    @property
    def _cookies(self) -> dict[str, str]:
        return {} if self.cookie is None else {"Cookie": f"{COOKIE}={self.cookie}"}

    def _keep(self, answer: Answer) -> Answer:
        given = answer.headers.get("Set-Cookie", "")
        if given.startswith(f"{COOKIE}="):
            self.cookie = given.partition("=")[2].partition(";")[0] or None
        return answer


def invite(deployment: Deployment, name: str, role: str, *tenants: str) -> Person:
    """Invite a user with the command, set the account up over HTTPS, and return the logged-in user."""
    bound = [word for tenant in tenants for word in ("--tenant", deployment.tenants[tenant])]
    person = Person(deployment.client().using(None))
    person.set_up(make_link(deployment, "invite", "--role", role, *bound), name)
    return person


def make_link(deployment: Deployment, *words: str) -> str:
    folder = str(deployment.product.abby.folder)
    return str(json.loads(run_command("users", *words, "-o", "json", "--config", folder))["link"])


def token_in(answer: Answer) -> str:
    found = _TOKEN.search(answer.body.decode())
    assert found is not None, (answer.status, answer.body.decode())
    return found[1]


def secret_in(answer: Answer) -> str:
    found = _SECRET.search(answer.body.decode())
    assert found is not None, (answer.status, answer.body.decode())
    return found[1]


def text_of(answer: Answer) -> str:
    """Return what a person reads on the page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.body.decode())).split())
