"""The product: abby and any number of guards, set up by `mailwarden init`; abby and one guard may share a process."""

import http.client
import io
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ruamel.yaml import YAML

from mailwarden.cli.main import main
from workshop.rig import ports
from workshop.rig.engines import Engines, start_together
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.rspamd import PASSWORD
from workshop.rig.zones import ZONES

HOST = "127.0.0.1"
INIT_SECONDS = 60.0
# Alone it takes two seconds; on a machine that is busy with tests, ten.
READY_SECONDS = 120.0
# A little more than the product's shutdownGracePeriod.
GRACE_SECONDS = 35.0
CONFIGURATION_FILES = {"abby": Path("abby/abby/abby.yml"), "guard": Path("guard/core/guard.yml")}

# Keys and values of the YAML file, nested.
Overrides = Mapping[str, object]


class Service(ServerProcess):
    """abby or a guard with its own configuration folder, which may be changed between two starts."""

    def __init__(self, name: str, kind: str, folder: Path, port: int, python: str = sys.executable) -> None:
        self.folder = folder
        self.port = port
        self.url = self.address = f"https://{HOST}:{port}"
        self._kind = kind
        super().__init__(
            name,
            [python, "-m", "mailwarden", "serve", kind, "--config", str(folder)],
            folder.parent / f"{name}.log",
            self.is_healthy,
            deadline=READY_SECONDS,
            grace=GRACE_SECONDS,
        )

    def share(self) -> None:
        """Run the guard of this configuration folder in the same process at the next start."""
        self.command[self.command.index("serve") + 1] = "all"

    def upgrade(self, python: str = sys.executable) -> None:
        """Run the version of this interpreter at the next start."""
        self.command[0] = python

    def configure(self, overrides: Overrides) -> None:
        """Merge these keys into the configuration file; a running process reads them at its restart."""
        path = self.folder / CONFIGURATION_FILES[self._kind]
        yaml = YAML()
        configuration = yaml.load(path.read_text("utf-8")) or {}
        _merge(configuration, overrides)
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(configuration, file)

    def is_healthy(self) -> bool:
        """Call /healthz with abby's certificate, which guard requires."""
        # The start is polled many times a second: before the port is open, no certificate is read.
        with socket.create_connection((HOST, self.port), timeout=2.0) as plain:
            tls = self.folder / "tls"
            context = ssl.create_default_context(cafile=tls / "ca.crt")
            context.load_cert_chain(tls / "abby.crt", tls / "abby.key")
            connection = http.client.HTTPSConnection(HOST, self.port, context=context)
            connection.sock = context.wrap_socket(plain, server_hostname=HOST)
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == http.HTTPStatus.OK
            except http.client.HTTPException:
                return False
            finally:
                connection.close()


class GuardInAbby(Service):
    """A guard in abby's process: its own address and settings, and abby's process and log."""

    def __init__(self, name: str, abby: Service, port: int) -> None:
        super().__init__(name, "guard", abby.folder, port)
        self.log = abby.log
        self._abby = abby

    @property
    def pid(self) -> int:
        return self._abby.pid

    @property
    def running(self) -> bool:
        return self._abby.running

    @property
    def exit_code(self) -> int | None:
        return self._abby.exit_code

    def launch(self) -> None:
        self._abby.launch()

    def stop(self) -> None:
        self._abby.stop()

    def kill(self) -> None:
        self._abby.kill()


@dataclass(slots=True)
class Product:
    """abby and its guards; leaving the context stops them."""

    folder: Path
    abby: Service
    guards: list[Service] = field(default_factory=list)
    setup_link: str = ""  # the setup link of the first user of the console

    @property
    def services(self) -> list[Service]:
        return [self.abby, *(guard for guard in self.guards if not isinstance(guard, GuardInAbby))]

    @property
    def url(self) -> str:
        return self.abby.url

    @property
    def ca(self) -> Path:
        return self.abby.folder / "tls" / "ca.crt"

    @property
    def token(self) -> str:
        """A static token with all permissions."""
        return (self.abby.folder / "token").read_text("ascii").strip()

    def taken_ports(self) -> list[int]:
        """Return the ports that another program took after they were chosen; for services that did not start."""
        return [service.port for service in (self.abby, *self.guards) if not ports.is_free(service.port)]

    def start(self) -> None:
        """Start the services that are not running yet, in parallel."""
        waiting = [service for service in self.services if not service.running]
        start_together([service.start for service in waiting], waiting)

    def stop(self) -> None:
        """Stop abby first, so that no guard loses a request that abby has already accepted."""
        self.abby.stop()
        with ThreadPoolExecutor(max(1, len(self.guards))) as threads:
            for stopping in [threads.submit(guard.stop) for guard in self.guards]:
                stopping.result()

    def kill(self) -> None:
        for service in self.services:
            service.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def install_product(
    folder: Path,
    engines: Engines,
    database_url: str,
    *,
    guards: Sequence[Overrides] = ({},),
    abby: Overrides | None = None,
    abby_port: int | None = None,
    guard_port: int | None = None,
    python: str = sys.executable,
    one_process: bool = False,
) -> Product:
    """Set the product up without starting it, in FOLDER/config and FOLDER/config-N for the guards after the first.

    `guards` has one mapping per guard, merged into its guard.yml; `abby` is merged into abby.yml. `python` is the
    interpreter of another version of the product. With `one_process` abby and the first guard share a process.
    """
    folder = folder.absolute()
    for stale in (*folder.glob("config"), *folder.glob("config-*")):
        shutil.rmtree(stale)
    for stale in (*folder.glob("abby.log"), *folder.glob("guard-*.log")):
        stale.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / "config"
    guard_ports = [free_port(guard_port), *(free_port() for _ in guards[1:])]
    product = Product(folder, Service("abby", "abby", first, free_port(abby_port), python))
    printed = _initialise(python, first, engines, database_url, abby_port=product.abby.port, guard_port=guard_ports[0])
    product.setup_link = next((line.split()[1] for line in printed.splitlines() if line.startswith("console ")), "")
    for number, (port, overrides) in enumerate(zip(guard_ports, guards, strict=True), 1):
        place = first if number == 1 else first.with_name(f"config-{number}")
        if number > 1:
            shutil.copytree(first, place)
        guard = Service(f"guard-{number}", "guard", place, port, python)
        if number == 1 and one_process:
            product.abby.share()
            guard = GuardInAbby(guard.name, product.abby, port)
        guard.configure({"listen": {"host": HOST, "port": port}, "name": guard.name})
        guard.configure({"engines": {"rspamd": {"training": training_of(engines)}, "dns": dns_of(engines)}})
        guard.configure(overrides)
        product.guards.append(guard)
    product.abby.configure({"serviceProviders": {"core": {"hosts": [guard.url for guard in product.guards]}}})
    product.abby.configure(abby or {})
    return product


def dns_of(engines: Engines) -> Overrides:
    """Return the resolver that guard probes: the rig's, with a name that it serves."""
    return {"servers": [engines.dns.address], "probe": ZONES[0].name}


def training_of(engines: Engines) -> Overrides:
    """Return guard's settings to train the rig's Rspamd."""
    return {"controller": engines.rspamd.controller_address, "password": PASSWORD, "redis": engines.redis.url}


def start_product(
    folder: Path,
    engines: Engines,
    database_url: str,
    *,
    guards: Sequence[Overrides] = ({},),
    abby: Overrides | None = None,
    one_process: bool = False,
) -> Product:
    """Set the product up and start it; see `install_product`."""
    product = install_product(folder, engines, database_url, guards=guards, abby=abby, one_process=one_process)
    try:
        product.start()
    except BaseException:
        product.kill()
        raise
    return product


def _initialise(
    python: str, folder: Path, engines: Engines, database_url: str, *, abby_port: int, guard_port: int
) -> str:
    """Run `mailwarden init` and return its output."""
    options = {
        "--database-url": database_url,
        "--rspamd": engines.rspamd.address,
        "--clamav": engines.clamd.address,
        "--host": HOST,
        "--abby-port": str(abby_port),
        "--guard-port": str(guard_port),
    }
    words = ["init", str(folder), *(word for pair in options.items() for word in pair)]
    code, printed = _run_here(words) if python == sys.executable else _run_by(python, words)
    if code != 0:
        raise RigError(f"`mailwarden init` ended with code {code}\n{printed.strip()}")
    return printed


def _run_here(words: list[str]) -> tuple[int, str]:
    """Run the command in this process, which spares the second that another takes to start."""
    printed = io.StringIO()
    with ThreadPoolExecutor(1) as thread, redirect_stdout(printed), redirect_stderr(printed):
        # A thread of its own has no event loop yet.
        code = thread.submit(main, words).result()
    return code, printed.getvalue()


def _run_by(python: str, words: list[str]) -> tuple[int, str]:
    """Run the command of another version."""
    done = subprocess.run(
        [python, "-m", "mailwarden", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INIT_SECONDS,
        env=os.environ,
    )
    return done.returncode, done.stdout


def _merge(configuration: dict[str, object], overrides: Overrides) -> None:
    """Merge mappings key by key; any other value, such as a list, replaces the old one."""
    for key, value in overrides.items():
        present = configuration.get(key)
        if isinstance(value, Mapping) and isinstance(present, dict):
            _merge(present, value)
        else:
            configuration[key] = value
