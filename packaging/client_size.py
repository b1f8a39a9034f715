"""Print the installed size of the client's wheel, alone and with its dependencies as they are installed here."""

import re
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path


def requirements(name: str) -> set[str]:
    """Return the distributions that one needs in this environment, and those that they need."""
    found = {name}
    waiting = [name]
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            needed = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().replace("_", "-")
            if needed not in found and _is_installed(needed) and "extra ==" not in line:
                found.add(needed)
                waiting.append(needed)
    return found


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


def installed_size(name: str) -> int:
    files = [Path(str(each.locate())) for each in distribution(name).files or ()]
    return sum(each.stat().st_size for each in files if each.is_file() and each.suffix != ".pyc")


def main(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        own = sum(each.file_size for each in archive.infolist())
        (metadata,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        needed = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist") or []
    names = [re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0].lower() for each in needed]
    every = sorted({other for name in names for other in requirements(name)})
    more = sum(map(installed_size, every))
    print(f"mailwarden-client: {own / 1000:.0f} kB, one dependency: {', '.join(names)}")
    print(f"with {', '.join(every)}: {(own + more) / 1_000_000:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
