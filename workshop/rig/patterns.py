"""Caches the patterns that Rspamd compiles: compiling takes most of its first start."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from workshop.rig.programs import find_program

# Rspamd writes these under another name and renames them, so a file with such a name is complete. The name is a digest
# of the patterns and of the processor, so the content is always right.
COMPLETE = re.compile(r"^[0-9a-f]{64}\.hs(mp|mc)?$")


def restore_patterns(state: Path, owner: str | None) -> None:
    """Copy the cached patterns into Rspamd's folder."""
    for path in _patterns(_cache()):
        target = state / path.name
        if not target.exists():
            with contextlib.suppress(FileNotFoundError):  # A user may clear the cache at any time.
                _copy(path, target, owner)


def save_patterns(state: Path) -> None:
    """Copy the compiled patterns into the cache; several rigs can do so at once."""
    cache = _cache()
    for path in _patterns(state):
        target = cache / path.name
        if not target.exists():
            with contextlib.suppress(FileNotFoundError):  # Rspamd deletes patterns that it no longer uses.
                _copy(path, target, None)


def _patterns(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if COMPLETE.match(path.name)]


def _copy(source: Path, target: Path, owner: str | None) -> None:
    """Copy under another name and rename, so that no reader sees a partial file."""
    handle, name = tempfile.mkstemp(prefix="copy-", dir=target.parent)
    os.close(handle)
    try:
        shutil.copyfile(source, name)
        if owner is not None:
            shutil.chown(name, owner, owner)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@functools.cache
def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = subprocess.run([find_program("rspamd"), "--version"], check=False, capture_output=True, text=True)
    name = re.sub(r"[^0-9.]+", "", version.stdout.partition("\n")[0]) or "unknown"
    folder = base / "mailwarden-rig" / f"rspamd-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
