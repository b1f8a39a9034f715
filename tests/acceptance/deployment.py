"""The product as a customer runs it: abby, guards, tenants and keys made by the command, and tokens."""

import io
import itertools
import json
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from mailwarden.cli.main import main
from tests.acceptance.client import PATIENCE, Answer, Client
from tests.acceptance.list_client import ListClient
from tests.acceptance.pausable_clamd import PausableClamd
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, Product, install_product

# Name, profile and recipient domain of each tenant; the deployment's default tenant is there from the start.
TENANTS = (
    ("acme", "balanced", "company.example"),
    ("bank", "strict", "bank.example"),
    ("club", "balanced", "club.example"),
)
# What each API key may do, and the tenants it is bound to; none means the deployment.
KEYS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "all": (("lists:read", "lists:write"), ()),
    "reader": (("lists:read",), ()),
    "writer": (("lists:write",), ()),
    "acme": (("lists:read", "lists:write"), ("acme",)),
    "club": (("lists:read", "lists:write"), ("club",)),
    "both": (("lists:read", "lists:write"), ("acme", "club")),
}
DAILY = ("messageQueue.submit", "messageQueue.read", "messageQueue.report")  # what a tenant's own tokens may do
# The tests of one deployment share its keys and exceed the usual rate limit.
NO_RATE_LIMIT: Overrides = {"listsRateLimit": 1_000_000}
# Receivers of events listen on loopback; endpoints with tenants reach public addresses only.
LOCAL_RECEIVERS: Overrides = {"events": {"allowPrivateNetworks": ["127.0.0.0/8"]}}
# A worker takes a second of CPU to start. One for light and one for heavy messages do what more of them do.
FEW_WORKERS: Overrides = {"workers": {"count": 1}}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Deployment:
    product: Product
    tenants: Mapping[str, str]
    tokens: Mapping[str, str]
    keys: Mapping[str, str]
    database: str

    def lists(self, key: str = "all", tenant: str | None = None) -> ListClient:
        """Return a client of the List API with that key and tenant."""
        uid = None if tenant is None else self.tenants[tenant]
        return ListClient(self.client().using(None), self.keys[key], uid)

    def client(self, token: str = "everything") -> Client:
        return Client(self.product.url, self.product.ca, self.tokens[token])


@dataclass(frozen=True)
class DeploymentTemplate:
    """The database that every deployment copies, with its tenants and keys, and the pepper of the keys."""

    template: str
    tenants: Mapping[str, str]
    keys: Mapping[str, str]
    pepper: str


def create_deployment_template(engines: Engines, template: str) -> DeploymentTemplate:
    """Make the tenants and keys by the command in a copy of an empty database; list the default tenant as well."""
    name = "acceptance"
    url = engines.postgresql.create_database(name, template=template)
    for tenant, profile, domain in TENANTS:
        run_command("tenants", "create", tenant, "--profile", profile, "--domain", domain, "--database-url", url)
    listed = json.loads(run_command("tenants", "ls", "-o", "json", "--database-url", url))
    tenants = {"default" if row["default"] else row["name"]: row["tenantUid"] for row in listed}
    pepper = secrets.token_hex(32)
    return DeploymentTemplate(name, tenants, make_keys(url, tenants, pepper), pepper)


def make_keys(url: str, tenants: Mapping[str, str], pepper: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        run_command("init", f"{folder}/made", "--no-database")
        Path(folder, "made", "secrets", "pepper").write_text(pepper)
        return {name: make_key(Path(folder, "made"), url, name, tenants) for name in KEYS}


def make_key(folder: Path, url: str, name: str, tenants: Mapping[str, str]) -> str:
    scopes, bound = KEYS[name]
    words = [word for scope in scopes for word in ("--scope", scope)]
    words += [word for tenant in bound for word in ("--tenant", tenants[tenant])] or ["--global"]
    made = run_command("keys", "create", name, *words, "-o", "json", "--config", str(folder), "--database-url", url)
    return str(json.loads(made)["key"])


@contextmanager
def run_deployment(
    engines: Engines,
    deployment_template: DeploymentTemplate,
    folder: Path,
    *,
    guards: Sequence[Overrides] = ({},),
    abby: Overrides | None = None,
    start: bool = True,
    one_process: bool = True,
    workers: Overrides = FEW_WORKERS,
) -> Iterator[Deployment]:
    """Set up a product with a database of its own, start it, and stop it at the end; see `install_product`.

    abby and the first guard share a process unless a test needs each by itself. `workers` is merged into each guard.yml
    before the settings of `guards`.
    """
    name = f"acceptance_{next(_numbers)}"
    database = engines.postgresql.create_database(name, template=deployment_template.template)
    product = install_product(
        folder,
        engines,
        database,
        guards=[{**workers, **guard} for guard in guards],
        abby={**NO_RATE_LIMIT, **LOCAL_RECEIVERS, **(abby or {})},
        one_process=one_process,
    )
    (product.abby.folder / "secrets" / "pepper").write_text(deployment_template.pepper)
    deployment = Deployment(
        product,
        deployment_template.tenants,
        give_tokens(product, deployment_template.tenants),
        deployment_template.keys,
        name,
    )
    try:
        if start:
            product.start()
        yield deployment
    finally:
        product.stop()


def give_tokens(product: Product, tenants: Mapping[str, str]) -> dict[str, str]:
    """Write tokens with different permissions into abby.yml and return each by its name."""
    permissions: dict[str, list[str] | None] = {
        "everything": ["*"],
        "plain": None,
        "empty": [],
        "submitter": ["messageQueue.submit"],
        "reader": ["messageQueue.read"],
        "reporter": ["messageQueue.report"],
        "looker": ["quarantine.read"],
        "releaser": ["quarantine.read", "quarantine.manage", f"tenant:{tenants['acme']}"],
        "watcher": ["admin.status"],
        "meter": ["admin.metrics"],
        "acme": [*DAILY, f"tenant:{tenants['acme']}"],
        "club": [*DAILY, f"tenant:{tenants['club']}"],
        "default": [*DAILY, f"tenant:{tenants['default']}"],
        "both": ["*", f"tenant:{tenants['acme']}", f"tenant:{tenants['club']}"],
    }
    tokens = {name: secrets.token_hex(32) for name in permissions}
    entries: list[Overrides] = [
        {"name": name, "token": tokens[name], **({} if given is None else {"permissions": given})}
        for name, given in permissions.items()
    ]
    product.abby.configure({"staticApiTokens": entries})
    return tokens


def run_command(*words: str) -> str:
    """Run the command and return what it prints, in this process: another takes a second to start."""
    printed, mistakes = io.StringIO(), io.StringIO()
    with ThreadPoolExecutor(1) as thread, redirect_stdout(printed), redirect_stderr(mistakes):
        # A thread of its own has no event loop yet, whatever kind of test asks.
        code = thread.submit(main, words).result()
    assert code == 0, mistakes.getvalue()
    return printed.getvalue()


def guard_status(deployment: Deployment, number: int) -> dict[str, Any]:
    """Return the status of a guard, with the certificate that it requires."""
    tls = deployment.product.abby.folder / "tls"
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            f"{deployment.product.guards[number].url}/v1/guard/status",
            verify=str(tls / "ca.crt"),
            cert=(str(tls / "abby.crt"), str(tls / "abby.key")),
            timeout=PATIENCE,
        )
        return dict(answer.json())


def wait_for_lists(deployment: Deployment) -> None:
    """Wait until every guard uses all list entries written before this call."""
    written = time.time()

    def follows(number: int) -> bool:
        asked = time.time()
        lag = guard_status(deployment, number)["listsLagSeconds"]
        return lag is not None and asked - float(lag) > written

    for number in range(len(deployment.product.guards)):
        assert wait_until(lambda number=number: follows(number))


def in_processing(deployment: Deployment, number: int) -> int:
    return int(guard_status(deployment, number)["inProcessing"])


@contextmanager
def submitting(
    deployment: Deployment, message: bytes, count: int, pausable_clamd: PausableClamd
) -> Iterator[list["Future[Answer]"]]:
    """Run this many submissions at once; at the end resume clamd and wait for all answers."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield [threads.submit(deployment.client().submit, message) for _ in range(count)]
        finally:
            pausable_clamd.resume()
