"""Another version of the product: its source from git, in a virtual environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LOCK = Path("requirements/run.txt")
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def last_change_of(*paths: str) -> str:
    """Return the last commit that changed one of these paths, or "" if there is none, as in a source archive."""
    return _git("log", "--format=%H", "-1", "--", *paths, check=False).stdout.decode("ascii").strip()


def tree_of(commit: str) -> str:
    """Return git's id of the files of a commit."""
    return _git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.decode("ascii").strip()


def working_tree() -> str:
    """Return git's id of the files of this checkout as they are now, with changes and new files."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git("read-tree", "HEAD", environment=index)
        _git("add", "--all", environment=index)
        return _git("write-tree", environment=index).stdout.decode("ascii").strip()


def install_version(tree: str, folder: Path, *, own_packages: bool = False) -> str:
    """Install the version with these files below the folder and return its interpreter; it is used again.

    Without `own_packages` it gets copies of the packages that this version has in the same release.
    """
    target = folder.absolute()
    python = target / "venv" / "bin" / "python"
    mark = target / "complete"
    if mark.exists() and mark.read_text("ascii") == tree:
        return str(python)
    shutil.rmtree(target, ignore_errors=True)
    source = target / "source"
    source.mkdir(parents=True)
    subprocess.run(["tar", "--extract"], check=True, cwd=source, input=_git("archive", tree).stdout)
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
    mark.write_text(tree, "ascii")
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


def _git(
    *words: str, check: bool = True, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=check, capture_output=True, env=os.environ | (environment or {}))
