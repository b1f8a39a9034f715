"""Requirements of the host: Debian, memory, cores, free disk."""

import os
import re
import shutil
from pathlib import Path

RELEASES = ("12", "13")
CORES = 2
# A machine of 4 GB has a little less for Linux.
MEMORY = 3_600
LEAST_MEMORY = 1_800
SPARE_DISK = 400  # MB for the databases of `make run` and for apt while it unpacks


def release(os_release: str) -> dict[str, str]:
    """Read /etc/os-release."""
    return {name: value.strip('"') for name, value in re.findall(r"(?m)^(\w+)=(.*)$", os_release)}


def wrong_system(os_release: str) -> str:
    """Return what to do if this is not a supported Debian, or ""."""
    system = release(os_release)
    if system.get("ID") == "debian" and system.get("VERSION_ID") in RELEASES:
        return ""
    name = system.get("PRETTY_NAME") or "an unknown system"
    return f"This is {name}; Mailwarden's checkout needs Debian 12 or 13. Use one, for example in a virtual machine."


def memory() -> int:
    """Return the memory of the host in MB."""
    match = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
    return int(match[1]) // 1_024 if match else 0


def wrong_size(cores: int, megabytes: int) -> tuple[str, str]:
    """Return an error and a warning about cores and memory, each "" if there is none."""
    if megabytes < LEAST_MEMORY:
        return f"This host has {megabytes} MB of memory: `make run` needs 4 GB. Use a larger machine.", ""
    if megabytes < MEMORY or cores < CORES:
        return "", (
            f"This host has {cores} cores and {megabytes} MB of memory. "
            "Mailwarden wants 2 cores and 4 GB: expect slow starts, or processes that the kernel ends."
        )
    return "", ""


def too_little_disk(needs: dict[Path, float]) -> str:
    """Return what to do if a file system has less room than its folders need together (in MB), or ""."""
    together: dict[int, float] = {}
    for folder, megabytes in needs.items():
        device = folder.stat().st_dev
        together[device] = together.get(device, SPARE_DISK) + megabytes
        free = shutil.disk_usage(folder).free / 1e6
        if free < together[device]:
            return (
                f"The file system of {folder} has {free:,.0f} MB free, and the setup needs {together[device]:,.0f} MB. "
                "Remove files, or clone to another disk."
            )
    return ""


def cores() -> int:
    return len(os.sched_getaffinity(0))
