"""Tools that only a test needs: from a locked file, in an environment of their own."""

import subprocess
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def install_tools(folder: Path, name: str) -> None:
    """Install requirements/NAME.txt into a folder, unless the folder has exactly that."""
    requirements = REQUIREMENTS / f"{name}.txt"
    installed = folder / "requirements.txt"
    if installed.exists() and installed.read_bytes() == requirements.read_bytes():
        return
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--require-hashes", "--no-deps"]
    subprocess.run([*pip, "-r", requirements], check=True)
    installed.write_bytes(requirements.read_bytes())
