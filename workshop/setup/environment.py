"""The virtual environment in .venv, with the locked Python packages."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from workshop.setup.packages import SetupError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
# Debian's pip, which python3-venv brings: `make run` needs no second copy in the environment.
WHEELS = Path("/usr/share/python-wheels")
# MB to fetch and on disk, measured; a lock names no sizes.
SIZES = {"setup": (61, 245), "develop": (150, 500), "clickhouse": (140, 540)}
PACKAGES_OF_A_LINE = 10


def pip_is_there() -> bool:
    return any(WHEELS.glob("pip-*.whl"))


def locked_packages(name: str) -> int:
    """Return how many packages a locked file has."""
    return len(re.findall(r"(?m)^[A-Za-z0-9._-]+==", (REQUIREMENTS / f"{name}.txt").read_text("utf-8")))


def outdated(names: list[str]) -> list[str]:
    """Return the locked files that the environment does not have as they are now."""
    return names if not _is_usable() else [name for name in names if _mark(name) != _content(name)]


def create(names: list[str], log: Path, say: Callable[[str], None]) -> None:
    """Install these locked files and Mailwarden itself; a broken environment, or one of another Python, is replaced."""
    if not _is_usable():
        if FOLDER.exists():
            say(f"Python packages: .venv does not belong to {sys.executable} and this folder. It is made again.")
        shutil.rmtree(FOLDER, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(FOLDER)], log)
    pip = [str(PYTHON), str(max(WHEELS.glob("pip-*.whl")) / "pip"), "--disable-pip-version-check", "--no-cache-dir"]
    install = [*pip, "install", "--progress-bar", "off", "--no-deps", "--no-compile"]
    for name in names:
        _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / f"{name}.txt")], log, _counted(name, say))
    _run([*install, "--no-build-isolation", "--editable", str(ROOT)], log)
    if "develop" in names:
        _run([str(PYTHON), "-m", "ensurepip", "--default-pip"], log)
    for name in names:
        _mark_path(name).write_bytes(_content(name))


def create_beside(names: list[str], log: Path, say: Callable[[str], None]) -> Callable[[], None]:
    """Start `create` in a thread, and return the function that waits for it and raises its error."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            create(names, log, say)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        if errors:
            raise errors[0]

    return wait


def finish(log: Path) -> None:
    """Compile the code and the tables, so that the first start does not."""
    _run([str(PYTHON), "-m", "compileall", "-q", "-j", "0", "src", "workshop/rig"], log)
    _run([str(FOLDER / "bin" / "mailwarden"), "compile"], log)


def _counted(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a reader of pip's lines that reports progress."""
    total, seen = locked_packages(name), 0

    def read(line: str) -> None:
        nonlocal seen
        if line.startswith("Collecting "):
            seen += 1
            if seen % PACKAGES_OF_A_LINE == 0:
                say(f"Python packages: {seen} of {total} fetched")
        elif line.startswith("Installing collected"):
            say("Python packages: installing")

    return read


def _run(command: list[str], log: Path, read: Callable[[str], None] = lambda _: None) -> None:
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            read(line)
    if process.returncode != 0:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise SetupError(f"Python packages could not be installed: {reason} See {log}, then run the command again.")


def _is_usable() -> bool:
    """Return whether .venv has the interpreter that runs this program."""
    if not PYTHON.exists():
        return False
    question = "import sys; print(sys.prefix, *sys.version_info[:2])"
    done = subprocess.run([str(PYTHON), "-c", question], check=False, capture_output=True, text=True)
    return done.stdout.split() == [str(FOLDER), *map(str, sys.version_info[:2])]


def _content(name: str) -> bytes:
    """Return what decides whether an installation is up to date: the lock, and the project's own file."""
    return (REQUIREMENTS / f"{name}.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()


def _mark_path(name: str) -> Path:
    return FOLDER / f"installed-{name}.txt"


def _mark(name: str) -> bytes:
    path = _mark_path(name)
    return path.read_bytes() if path.exists() else b""
