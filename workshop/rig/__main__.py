"""`python -m workshop.rig engines` starts the servers, `run` the product as well, `demo` the demo; Ctrl-C ends all."""

import argparse
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from mailwarden.cli.main import main as mailwarden
from workshop.rig.demo import demo_words
from workshop.rig.dns import Dns
from workshop.rig.engines import Engines, start_engines
from workshop.rig.process import RigError
from workshop.rig.product import Product, install_product
from workshop.rig.samples import malware_message, phishing_message, plain_message, spam_message

FOLDER = Path("run")
ABBY_PORT = 9081
GUARD_PORT = 9785
ATTEMPTS = 3
SAMPLES: Mapping[str, Callable[[Dns], bytes]] = {
    "plain": lambda dns: dns.sign(plain_message(), "pass.example"),
    "phishing": lambda _: phishing_message(),
    "spam": lambda dns: dns.sign(spam_message(), "pass.example"),
    "malware": lambda dns: dns.sign(malware_message(), "pass.example"),
}
PARAMETERS = (
    '{"borderMtaData": {"envelopeFrom": "alice@pass.example", "envelopeRecipients": ["bob@company.example"],'
    ' "remoteAddress": "192.0.2.10", "senderHelo": "mail.pass.example"}}'
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workshop.rig", description=__doc__)
    parser.add_argument(
        "what", choices=("engines", "run", "demo"), help="the servers alone, or the product or the demo with them"
    )
    parser.add_argument("--separate", action="store_true", help="abby and guard as two processes (default: one)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where everything is kept (default: ./run)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder / "demo" if arguments.what == "demo" else arguments.folder
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _break_off)
    try:
        with _sole_use(folder), start_engines(folder / "engines", progress=_say) as engines:
            if arguments.what == "engines":
                _show_engines(engines)
                _wait()
            elif arguments.what == "demo":
                return _run_demo(folder, engines)
            else:
                _run_product(folder, engines, one_process=not arguments.separate)
    except (RigError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say("stopped")
    return 0


def _run_product(folder: Path, engines: Engines, *, one_process: bool) -> None:
    _say("setting up abby and guard")
    with _started_product(folder, engines, one_process=one_process) as product:
        _show_engines(engines)
        _show_product(folder, engines, product)
        _wait()


def _started_product(folder: Path, engines: Engines, *, one_process: bool) -> Product:
    """Start the product; on other ports if another program took one between the choice and the start."""
    for attempt in range(1, ATTEMPTS + 1):
        product = install_product(
            folder,
            engines,
            engines.postgresql.create_database(f"mailwarden{attempt}"),
            abby_port=ABBY_PORT,
            guard_port=GUARD_PORT,
            one_process=one_process,
        )
        try:
            product.start()
        except BaseException as error:
            product.kill()
            taken = product.taken_ports() if isinstance(error, RigError) else []
            if not taken or attempt == ATTEMPTS:
                raise
            _say(f"Another program took port {taken[0]}. Trying other ports.")
        else:
            return product
    raise AssertionError


def _run_demo(folder: Path, engines: Engines) -> int:
    """Run `mailwarden demo` with the rig's engines."""
    return mailwarden(demo_words(folder / "deployment", engines))


def _show_engines(engines: Engines) -> None:
    for server in engines.servers:
        _say(f"{server.name:12}{server.address}")


def _show_product(folder: Path, engines: Engines, product: Product) -> None:
    for service in (product.abby, *product.guards):
        print(f"{service.name:12}{service.url}")
    # Sessions and passkeys belong to the host name of the setup link; browsers reject passkeys for an IP address.
    console = product.setup_link.partition("setup/")[0] or f"{product.url}/console/"
    print(f"{'console':12}{product.setup_link} (the first time; afterwards {console})")
    samples = folder / "samples"
    samples.mkdir(exist_ok=True)
    for name, make in SAMPLES.items():
        (samples / f"{name}.eml").write_bytes(make(engines.dns))
    here = Path.cwd()
    ca, token = (os.path.relpath(path, here) for path in (product.ca, product.abby.folder / "token"))
    print(
        f"\nTry it (also with {', '.join(f'{name}.eml' for name in list(SAMPLES)[1:])}):\n\n"
        f'curl --cacert {ca} -H "Authorization: Bearer $(cat {token})" \\\n'
        f"  -F 'parameters={PARAMETERS};type=application/json' \\\n"
        f"  -F 'email=@{samples}/plain.eml' \\\n"
        f"  {product.url}/v1/messageQueue/submitEmail\n"
    )


def _break_off(_number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is stopped in order; a second Ctrl-C must not interrupt that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


def _wait() -> None:
    _say("Ctrl-C stops everything")
    while True:
        signal.pause()


@contextlib.contextmanager
def _sole_use(folder: Path) -> Iterator[None]:
    """Refuse to empty a folder that another rig uses."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RigError(f"another rig is running in {folder}: stop it, or use --folder") from None
        yield


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
