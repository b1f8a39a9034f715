"""`make check-long ONLY=release`: builds the release of HEAD twice and compares every artifact.

The second build has another folder, host name, umask, locale, time zone and number of processors. Needs what
packaging/release.py needs. A key of its own signs the checksums, and the documented commands verify them.
"""

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import chart
from locked_tools import install_tools
from packages import documented, ready
from summary import Summary

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run" / "release"
KEY = "test@company.example"
SHOWN = 10
# The version before the first release, which the packages must replace.
BEFORE = "0.1.0"
OTHER = {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Pacific/Chatham"}
OTHER_HOST = 'hostname another; umask 077; exec taskset --cpu-list 0 "$@"'


def build(name: str, options: argparse.Namespace, *, other: bool) -> tuple[Path, float, int]:
    """Build into run/release/NAME, and return the folder, the seconds and the exit code."""
    output = RUN / name
    command = ["packaging/release.py", "build", "--candidate", "--commit", options.commit, "--key", KEY]
    command += ["--output", str(output)]
    command += ["--work", str(RUN / f"build-{name}"), "--suites", *options.suites]
    command += ["--image"] if options.image else []
    command = ["unshare", "--uts", "sh", "-c", OTHER_HOST, "sh", *command] if other else command
    began = time.monotonic()
    with (RUN / f"{name}.log").open("w") as log:
        environment = {**os.environ, **(OTHER if other else {})}
        done = subprocess.run(command, check=False, cwd=ROOT, env=environment, stdout=log, stderr=log)
    return output, time.monotonic() - began, done.returncode


def compare(checks: Summary, first: Path, second: Path) -> None:
    """Compare every artifact byte by byte; of a different one print the members that differ."""
    names = {path.name for path in (*first.iterdir(), *second.iterdir())}
    for name in sorted(names - {"SHA256SUMS.asc"}):  # a signature has the time of signing
        one, other = first / name, second / name
        if not one.exists() or not other.exists():
            checks.line(f"{name}: missing in one build", well=False)
            continue
        well = digest(one) == digest(other)
        size = f"{one.stat().st_size / 1_000_000:.1f} MB"
        output = "" if well else differences(one, other)
        checks.line(f"{name}: {'identical' if well else 'differs'}, {size}", well=well, output=output)


def digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def differences(one: Path, other: Path) -> str:
    first, second = members(one), members(other)
    different = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    lines = [f"     {name}: {first.get(name)} | {second.get(name)}" for name in different[:SHOWN]]
    more = [f"     and {len(different) - SHOWN} more"] if len(different) > SHOWN else []
    return "\n".join([*lines, *more]) or "     same members; their order or compression differs"


def members(path: Path) -> dict[str, str]:
    """Return the members of an archive with their time, mode and digest, or the lines of a text."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {each.filename: f"{each.date_time} {each.external_attr:o} {each.CRC}" for each in archive.infolist()}
    if path.suffix == ".deb":
        found: dict[str, str] = {}
        for part in ("--ctrl-tarfile", "--fsys-tarfile"):
            done = subprocess.run(["dpkg-deb", part, path], check=True, capture_output=True)
            found |= {f"{part[2:6]} {name}": text for name, text in tar_members(done.stdout).items()}
        return found
    if path.name.endswith(".oci.tar"):
        return image_members(path)
    if path.suffix in (".gz", ".tgz"):
        return tar_members(path.read_bytes())
    return {str(number): line for number, line in enumerate(path.read_text("utf-8").splitlines())}


def tar_members(data: bytes) -> dict[str, str]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for each in archive:
            content = archive.extractfile(each) if each.isfile() else None
            short = hashlib.sha256(content.read()).hexdigest()[:12] if content else each.linkname
            found[each.name] = f"{each.mtime} {each.mode:o} {each.uid}:{each.gid} {short}"
    return found


def image_members(path: Path) -> dict[str, str]:
    """Return the members of the layers, and the rest of the archive by the names of its blobs."""
    found: dict[str, str] = {}
    with tarfile.open(path) as archive:
        for each in archive:
            content = archive.extractfile(each)
            if content is None:
                continue
            data = content.read()
            if data.startswith(b"\x1f\x8b"):
                found |= {f"layer {name}": text for name, text in tar_members(data).items()}
            else:
                found[each.name] = hashlib.sha256(data).hexdigest()[:12]
    return found


def check_signature(checks: Summary, folder: Path) -> None:
    """Verify a download by the commands of docs/install.md, and see them reject changed files."""
    (commands,) = documented("### Verify a download")
    exported = subprocess.run(["gpg", "--batch", "--export", KEY], check=True, capture_output=True).stdout
    (folder / "mailwarden.gpg").write_bytes(exported)

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-eu", "-c", commands], check=False, cwd=folder, capture_output=True, text=True)

    done = verified()
    checks.line("the documented commands verify the artifacts", well=done.returncode == 0, output=done.stderr)
    for name in ("SHA256SUMS", "mailwarden-chart-*.tgz"):
        (path,) = folder.glob(name)
        original = path.read_bytes()
        path.write_bytes(original[:-2] + bytes([original[-2] ^ 1]) + original[-1:])
        checks.line(f"a changed {path.name} is refused", well=verified().returncode != 0)
        path.write_bytes(original)


def check_content(checks: Summary, folder: Path) -> None:
    """Check that helm reads the chart, that packages replace the version before, and count the SBOM."""
    (archive,) = folder.glob("mailwarden-chart-*.tgz")
    install_tools(chart.TOOLS, "chart")
    values = chart.CHART / "ci" / "least.yaml"
    packed, unpacked = (chart.run("helm", "template", "mail", each, "-f", values) for each in (archive, chart.CHART))
    well = packed.returncode == 0 and packed.stdout == unpacked.stdout
    checks.line(f"helm renders {archive.name} as its folder", well=well, output=packed.stdout[-2000:])
    for package in sorted(folder.glob("*.deb")):
        field = ["dpkg-deb", "--field", str(package), "Version"]
        version = subprocess.run(field, check=True, capture_output=True, text=True).stdout.strip()
        before = f"{BEFORE}~{version.partition('~')[2]}"
        newer = subprocess.run(["dpkg", "--compare-versions", version, "gt", before], check=False)
        checks.line(f"{version} is newer than {before}", well=newer.returncode == 0)
        sbom = json.loads((folder / f"{package.stem}.cdx.json").read_text("utf-8"))
        product = sbom["metadata"]["component"]
        well = (product["name"], product["version"]) == ("mailwarden", version.partition("~")[0])
        checks.line(f"SBOM of {product['name']} {product['version']}: {len(sbom['components'])} libraries", well=well)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", nargs="*", default=["bookworm", "trixie"], help="default: bookworm trixie")
    parser.add_argument("--image", action="store_true", help="compare the archive of the image too")
    options = parser.parse_args()
    if not ready("mmdebstrap", "gpg", *(("buildah", "strip") if options.image else ())):
        return 2
    # A commit during the first build must not change the second.
    head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    options.commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    RUN.mkdir(parents=True, exist_ok=True)
    checks = Summary("release")
    with tempfile.TemporaryDirectory() as keys:
        os.environ["GNUPGHOME"] = keys
        generate = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", KEY]
        subprocess.run([*generate, "ed25519", "sign", "never"], check=True, capture_output=True)
        first, seconds, code = build("first", options, other=False)
        checks.line(f"first build, {seconds:.0f} s", well=code == 0, output=f"see {RUN / 'first.log'}")
        second, seconds, code = build("second-in-another-folder", options, other=True)
        checks.line(f"second build, {seconds:.0f} s", well=code == 0, output=f"see {second}.log")
        if not checks.failures:
            compare(checks, first, second)
            check_content(checks, first)
            check_signature(checks, first)
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=False)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
