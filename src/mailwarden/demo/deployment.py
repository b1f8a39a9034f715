"""The deployment of the demo: its folder, its database and its settings, and their end.

The folder has a file `demo.json` from the moment that something exists which has to be removed.
"""

import asyncio
import fcntl
import random
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import asyncpg
import msgspec
import uvloop
from msgspec import Struct
from msgspec.structs import replace
from ruamel.yaml import YAML

from mailwarden.abby import config as abby
from mailwarden.access.demo_mark import DemoMark
from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.demo.loopback import HOST, PROBE, loopback_servers
from mailwarden.demo.seeding import Say, Seeded, report_address, seed
from mailwarden.demo.stories import Book
from mailwarden.errors import CommandError
from mailwarden.guard import config as guard
from mailwarden.model.scope import Scope
from mailwarden.single_process import serve_all
from mailwarden.telemetry.logs import start_logging
from mailwarden.user_reports.requests import ReportKind

STATE, LOCK = "demo.json", "lock"
DATABASE = "mailwarden_demo"
SENDER = "mailwarden@demo.example"
LOWEST, HIGHEST = 20_000, 32_000  # below the ports that the kernel gives to clients
CONNECT_SECONDS = 5.0


class Demo(Struct, frozen=True):
    """The parts of a demo outside its folder: database and ports."""

    server: str  # PostgreSQL, with a role that may create databases
    database: str
    abby_port: int
    guard_port: int
    sink_port: int
    smtp_port: int
    dns_port: int
    seeded: bool = False

    @property
    def database_url(self) -> str:
        base, mark, query = self.server.partition("?")
        return f"{base.rpartition('/')[0]}/{self.database}{mark}{query}"

    @property
    def site(self) -> str:
        return f"https://localhost:{self.abby_port}"


def configuration_of(folder: Path) -> Path:
    return folder / "config"


def new_demo(server: str, port: int | None, database: str = DATABASE) -> Demo:
    """Choose ports that are free."""
    if "/" not in server.partition("://")[2]:
        raise CommandError("--postgresql must name a database to connect to, such as postgresql://127.0.0.1/postgres.")
    abby_port, guard_port, sink_port, smtp_port, dns_port = free_ports(port, 5)
    return Demo(server, database, abby_port, guard_port, sink_port, smtp_port, dns_port)


def free_ports(preferred: int | None, count: int) -> list[int]:
    """Return ports that are free for TCP and UDP, the preferred one first if it is."""
    ports: list[int] = []
    for port in (*filter(None, (preferred,)), *random.sample(range(LOWEST, HIGHEST), 500)):
        with closing(socket.socket()) as tcp, closing(socket.socket(type=socket.SOCK_DGRAM)) as udp, suppress(OSError):
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((HOST, port))
            udp.bind((HOST, port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise CommandError("This host has no free ports on loopback.")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Raise CommandError while another demo runs in this folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / LOCK).open("a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = read_demo(folder)
            where = f" at {running.site}" if running else ""
            raise CommandError(f"A demo is running already{where}, in {folder}. Stop it by Ctrl-C first.") from None
        yield


def read_demo(folder: Path) -> Demo | None:
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=Demo)
    except (OSError, msgspec.MsgspecError):
        return None


def write_demo(folder: Path, demo: Demo) -> None:
    (folder / STATE).write_bytes(msgspec.json.encode(demo))


async def create_database(demo: Demo) -> None:
    """Create the database; raise CommandError if there is one of that name."""
    try:
        connection = await asyncpg.connect(demo.server, timeout=CONNECT_SECONDS)
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        raise CommandError(
            f"PostgreSQL at {demo.server} cannot be used: {error}. Start it, name another by --postgresql, or make a "
            "role for yourself: sudo -u postgres createuser --createdb $USER"
        ) from None
    try:
        await connection.execute(f'CREATE DATABASE "{demo.database}"')
    except asyncpg.DuplicateDatabaseError:
        raise CommandError(
            f"The database {demo.database} exists already. If it is left from a demo in another folder, remove it "
            "there by `mailwarden demo --remove --folder …`; or choose another name by --database."
        ) from None
    except asyncpg.PostgresError as error:
        raise CommandError(f"The database {demo.database} cannot be created: {error}.") from None
    finally:
        await connection.close()


async def prepare_database(demo: Demo) -> None:
    """Create the tables, and mark the database as a demo's while it is empty."""
    await migrate(demo.database_url)
    database = Database(demo.database_url, 1)
    try:
        await DemoMark(database).set(Scope.deployment())
    finally:
        await database.close()


async def remove(folder: Path, demo: Demo) -> None:
    """Drop the database and delete all but the lock in the folder."""
    try:
        connection = await asyncpg.connect(demo.server, timeout=CONNECT_SECONDS)
        try:
            await connection.execute(f'DROP DATABASE IF EXISTS "{demo.database}" WITH (FORCE)')
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        raise CommandError(f"The database {demo.database} was not removed: {error}. Repeat the command.") from None
    await asyncio.to_thread(_clear, folder)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def configure(folder: Path, demo: Demo, book: Book) -> None:
    """Add the settings of a demo to the configuration that `mailwarden init` wrote."""
    quiet = {"level": "error"}
    kinds = [kind.value for kind in ReportKind]
    addresses = {report_address(tenant.domains[0], kind): kind for tenant in book.people.tenants for kind in kinds}
    smtp = {"listen": {"host": HOST, "port": demo.smtp_port}, "nextHop": f"{HOST}:{demo.sink_port}"}
    _merge(
        configuration_of(folder) / guard.PATH,
        {
            "name": "demo",
            "log": quiet,
            "scanSources": {"smtp": smtp},
            "engines": {"dns": {"servers": [f"{HOST}:{demo.dns_port}"], "probe": PROBE}},
            "quarantine": {"digest": {"sender": SENDER, "link": demo.site}},
            "weeklyReport": {"sender": SENDER, "link": demo.site},
            "reports": {"sender": SENDER, "addresses": addresses},
            "events": {"retentionDays": 30},
        },
    )
    # Without HSTS: browsers would otherwise use https for everything on localhost.
    _merge(configuration_of(folder) / abby.PATH, {"demo": True, "log": quiet, "hstsMaxAge": 0})


def _merge(path: Path, values: Mapping[str, object]) -> None:
    yaml = YAML()
    document = yaml.load(path.read_text("utf-8"))
    _merge_into(document, values)
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(document, file)


def _merge_into(document: dict[str, object], values: Mapping[str, object]) -> None:
    for key, value in values.items():
        present = document.get(key)
        if isinstance(value, Mapping) and isinstance(present, dict):
            _merge_into(present, value)
        else:
            document[key] = value


async def fill(folder: Path, demo: Demo, book: Book, say: Say) -> Seeded:
    """Seed the database."""
    start_logging("demo", "error", {"guard": "error"})
    async with loopback_servers(demo.sink_port, demo.dns_port):
        seeded = await seed(configuration_of(folder), demo.database, book, say)
    write_demo(folder, replace(demo, seeded=True))
    return seeded


def serve(folder: Path, demo: Demo, say: Say) -> None:
    """Run abby and guard until Ctrl-C; say where the first screen is once it answers."""

    async def run() -> None:
        async with loopback_servers(demo.sink_port, demo.dns_port):
            announcing = asyncio.create_task(_announce(demo, say))
            try:
                await serve_all(configuration_of(folder))
            finally:
                announcing.cancel()

    uvloop.run(run())


async def _announce(demo: Demo, say: Say) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, demo.abby_port)
        except OSError:
            await asyncio.sleep(0.1)  # until abby listens
            continue
        writer.close()
        break
    say(f"\n  {demo.site}/console/\n")
    say("Everyone is one click away, without a password; the browser warns about the certificate of the demo.")
    say("Ctrl-C stops the demo.")
