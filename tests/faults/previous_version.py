"""The previous version of the product: its source from git, in a virtual environment of its own."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The last commit before the first packages; any other commit with the same setup commands works too.
COMMIT = os.environ.get("MAILWARDEN_PREVIOUS") or "cba1d8e"
_LOCK = Path("requirements/run.txt")
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def is_known() -> bool:
    """Return whether this checkout has the commit; a shallow clone or a source archive lacks it."""
    return _git("cat-file", "-e", f"{COMMIT}^{{commit}}").returncode == 0


def install(folder: Path, *, own_packages: bool) -> str:
    """Install the previous version and return its interpreter; an installation of the same commit is used again.

    Without `own_packages` it gets copies of the packages that this version has in the same release.
    """
    name = _git("rev-parse", "--short=12", COMMIT).stdout.decode("ascii").strip()
    target = folder.absolute() / name
    python = target / "venv" / "bin" / "python"
    if (target / "complete").exists():
        return str(python)
    shutil.rmtree(target, ignore_errors=True)
    source = target / "source"
    source.mkdir(parents=True)
    subprocess.run(["tar", "--extract"], check=True, cwd=source, input=_git("archive", COMMIT).stdout)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target / "venv")], check=True)
    if not own_packages:
        _copy_packages(source / _LOCK, next(target.glob("venv/lib/python*/site-packages")))
    locked = ["install", "--require-hashes", "--no-deps", "-r", str(source / _LOCK)]
    subprocess.run([*_PIP, "--python", str(python), *locked], check=True)
    wheels = target / "wheels"
    subprocess.run([*_PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*_PIP, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    if subprocess.run([python, "-m", "mailwarden", "compile"], check=False, capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "mailwarden.policy.rules"], check=True)  # the command before `compile`
    (target / "complete").touch()
    return str(python)


def _copy_packages(lock: Path, libraries: Path) -> None:
    """Copy the packages that this version has in the same release; pip then installs only the others."""
    for name, release in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock.read_text("utf-8")):
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        for file in (found.files or ()) if found.version == release else ():
            if ".." not in file.parts and Path(file.locate()).is_file():
                (libraries / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), libraries / file)


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=False, capture_output=True)
