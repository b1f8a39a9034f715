#!/usr/bin/python3
"""Makes a release: checks what it needs, builds every artifact of a commit, and signs their checksums.

Artifacts are reproducible: the same commit gives the same bytes. Times come from the commit, tools from locked files,
and nothing from the folder, user or locale. Needs root, mmdebstrap and gpg; for the image also buildah and binutils.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = ROOT / "run" / "release"
SUITES = ("bookworm", "trixie")
SUMS = "SHA256SUMS"
EXAMPLE = "example:\n  packaging/release.py build --key packages@company.example --image"
# The tests of a release.
TARGETS = re.compile(r"(?m)^(check|check-long):")
HEADING = re.compile(r"(?m)^## (?P<version>\S+)(?: \((?P<date>\d{4}-\d\d-\d\d)?(?:not yet released)?\))?$")


class Refused(Exception):
    """A release cannot be made; the text says what is missing."""


@dataclass(frozen=True)
class Check:
    """One line of the checklist."""

    well: bool
    text: str


@dataclass(frozen=True)
class Source:
    """The commit of a release."""

    commit: str
    tree: str
    epoch: int

    @staticmethod
    def of(name: str) -> "Source":
        commit = git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        tree = git("rev-parse", f"{commit}^{{tree}}")
        return Source(commit=commit, tree=tree, epoch=int(git("log", "-1", "--format=%ct", commit)))

    def read(self, path: str) -> str:
        return git("show", f"{self.commit}:{path}") + "\n"


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"git {shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


# What a release needs


def version_in(read: Callable[[str], str]) -> str:
    found = re.search(r'(?m)^__version__ = "(\d+\.\d+\.\d+)"$', read("src/mailwarden/__init__.py"))
    if found is None:
        raise Refused("src/mailwarden/__init__.py has no version of the form 1.2.3.")
    return found[1]


def check_version(read: Callable[[str], str]) -> Iterator[Check]:
    """Compare the version with every other file that names it."""
    version = version_in(read)
    heading = HEADING.search(read("CHANGELOG.md"))
    newest = heading[0] if heading else "no version"
    well = heading is not None and heading["version"] == version and newest.endswith(")")
    yield Check(well, f"CHANGELOG.md begins with `## {version} (YYYY-MM-DD)`, or `(not yet released)`: {newest}")
    chart = dict(re.findall(r'(?m)^(version|appVersion): "?([^"\n]+)"?$', read("deploy/chart/mailwarden/Chart.yaml")))
    for key in ("version", "appVersion"):
        yield Check(chart.get(key) == version, f"{key} of the Helm chart is {version}: {chart.get(key)}")
    minor = version.rpartition(".")[0]
    row = f"| {minor} | yes |"
    yield Check(f"\n{row}\n" in read("SECURITY.md"), f"SECURITY.md has a row of supported versions: {row}")


def check_release(source: Source) -> Iterator[Check]:
    """Yield the whole checklist."""
    changed = git("status", "--porcelain").splitlines()
    yield Check(not changed, f"the checkout has no changes: {', '.join(line[3:] for line in changed[:5]) or 'none'}")
    yield from check_version(source.read)
    heading = HEADING.search(source.read("CHANGELOG.md"))
    yield Check(bool(heading and heading["date"]), "CHANGELOG.md has the date of the release")
    for target in dict.fromkeys(TARGETS.findall(source.read("Makefile"))):
        well = record(source, target).exists()
        instead = "" if well else f"; run: packaging/release.py test {target}"
        yield Check(well, f"make {target} passed for this commit{instead}")
    tag = f"v{version_in(source.read)}"
    well = source.commit in git("tag", "--list", tag, "--format=%(objectname) %(*objectname)").split()
    instead = "" if well else f"; run: git tag --sign {tag} {source.commit}"
    yield Check(well, f"the tag {tag} is this commit{instead}")


def record(source: Source, target: str) -> Path:
    """Return the file that says that a test passed; it belongs to the content of a commit."""
    return RUN / "passed" / source.tree / target


def show(checks: list[Check]) -> bool:
    for check in checks:
        print(f"{'ok     ' if check.well else 'MISSING'} {check.text}", flush=True)
    return all(check.well for check in checks)


def run_tests(source: Source, targets: list[str]) -> int:
    """Run the tests in this checkout, one after the other, and record the ones that pass."""
    if source != Source.of("HEAD") or git("status", "--porcelain"):
        raise Refused("The tests run in this checkout: commit or remove its changes first.")
    known = dict.fromkeys(TARGETS.findall(source.read("Makefile")))
    if unknown := set(targets) - set(known):
        raise Refused(f"A release has no test {', '.join(sorted(unknown))}. Its tests are: {', '.join(known)}.")
    failed = 0
    for target in targets or known:
        log = RUN / "tests" / f"{target}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            done = subprocess.run(["make", target], check=False, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        passed = record(source, target)
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.unlink(missing_ok=True)
        if done.returncode == 0:
            passed.touch()
        failed += done.returncode != 0
        print(f"{'FAIL' if done.returncode else 'ok  '} make {target}, see {log.relative_to(ROOT)}", flush=True)
    return 1 if failed else 0


# The artifacts


def install_tools(source: Source) -> Path:
    """Install the locked tools once, and return the folder of their programs."""
    locked = source.read("requirements/release.txt")
    tools = RUN / "tools"
    installed = tools / "requirements.txt"
    if not installed.exists() or installed.read_text() != locked:
        venv.create(tools, with_pip=True, clear=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(locked)
            file.flush()
            pip = [str(tools / "bin" / "pip"), "install", "--quiet", "--require-hashes", "--no-deps"]
            subprocess.run([*pip, "-r", file.name], check=True)
        installed.write_text(locked)
    return tools / "bin"


def check_out(source: Source, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder))
    git("-C", str(folder), "checkout", "--quiet", "--detach", source.commit)


def write_chart(chart: Path, archive: Path, epoch: int) -> None:
    """Pack a Helm chart as `helm package` does, with the time of the commit."""
    ignored = tuple((chart / ".helmignore").read_text().split())
    files = sorted(path for path in chart.rglob("*") if path.is_file())
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in files:
            name = path.relative_to(chart).as_posix()
            if name.startswith(ignored):
                continue
            member = tarfile.TarInfo(f"{chart.name}/{name}")
            member.size, member.mtime, member.mode = path.stat().st_size, epoch, 0o644
            with path.open("rb") as content:
                tar.addfile(member, content)


def write_sbom(package: Path, sbom: Path, checkout: Path, tools: Path, environment: dict[str, str]) -> None:
    """Write the SBOM of a Debian package from the libraries inside it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        (libraries,) = folder.glob("usr/lib/mailwarden/lib/python3*/site-packages")
        # cyclonedx-py asks an interpreter for its search path. The package's interpreter may be missing on this host.
        interpreter = folder / "python"
        interpreter.write_text(f"#!/bin/sh\necho '{json.dumps([str(libraries)])}'\n")
        interpreter.chmod(0o755)
        project = folder / "pyproject.toml"
        version = version_in(lambda path: (checkout / path).read_text("utf-8"))
        text = (checkout / "pyproject.toml").read_text("utf-8")
        project.write_text(text.replace('dynamic = ["version"]', f'version = "{version}"'), "utf-8")
        command = [str(tools / "cyclonedx-py"), "environment", "--output-reproducible", "--pyproject", str(project)]
        subprocess.run([*command, "--output-file", sbom, interpreter], check=True, env=environment)
    differences = compare_sbom(sbom.read_text("utf-8"), (checkout / "requirements/run.txt").read_text("utf-8"))
    if differences:
        raise Refused(f"{package.name} and requirements/run.txt differ: {', '.join(differences)}")


def compare_sbom(sbom: str, requirements: str) -> list[str]:
    """Return the libraries that only the SBOM or only the locked requirements have."""

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    listed = {f"{normal(each['name'])}=={each['version']}" for each in json.loads(sbom)["components"]}
    locked = {f"{normal(name)}=={version}" for name, version in re.findall(r"(?m)^(\S+)==([^\s;]+)", requirements)}
    return sorted(listed ^ locked)


def build(source: Source, folder: Path, output: Path, suites: list[str], *, image: bool) -> None:
    """Build the artifacts of a commit into a folder, from a clean checkout."""
    os.umask(0o022)
    tools = install_tools(source)
    check_out(source, folder)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "PIP": str(tools / "pip"),
        "ROOTS": str(ROOT / "run" / "packages"),
    }

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=sys.stderr)

    version = version_in(source.read)
    run(tools / "python", "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", output)
    chart = folder / "deploy/chart/mailwarden"
    write_chart(chart, output / f"mailwarden-chart-{version}.tgz", source.epoch)
    for suite in suites:
        run("packaging/build-deb.sh", suite)
        (package,) = (folder / "dist" / suite).glob("*.deb")
        shutil.copy(package, output)
        write_sbom(package, output / f"{package.stem}.cdx.json", folder, tools, environment)
    if image:
        storage = folder / "run/storage.conf"
        storage.parent.mkdir(exist_ok=True)
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/run/graph"\nrunroot = "{folder}/run/run"\n'
        )
        environment["CONTAINERS_STORAGE_CONF"] = str(storage)  # the images of this host stay as they are
        run("packaging/image.sh")
        shutil.copy(folder / f"dist/mailwarden-{version}.oci.tar", output)
    shutil.rmtree(folder)


def sign(output: Path, key: str) -> None:
    """Write the checksums of all artifacts, and a detached signature of them."""
    artifacts = sorted(path for path in output.iterdir() if path.is_file())
    lines = []
    for path in artifacts:
        with path.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {path.name}\n")
    (output / SUMS).write_text("".join(lines))
    command = ["gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign"]
    subprocess.run([*command, output / SUMS], check=True)
    print("".join(lines), end="")


def require_key(key: str) -> None:
    if shutil.which("gpg") is None:
        raise Refused("gpg is missing. Run: apt-get install gnupg")
    found = subprocess.run(["gpg", "--batch", "--list-secret-keys", key], check=False, capture_output=True)
    if found.returncode:
        raise Refused(f"There is no secret key {key}. gpg --list-secret-keys shows the keys of this user.")


def require_programs(*, image: bool) -> None:
    """Refuse before the first build what the last one would miss minutes later."""
    needed = {"mmdebstrap": "mmdebstrap", **({"buildah": "buildah", "strip": "binutils"} if image else {})}
    if missing := [package for program, package in needed.items() if shutil.which(program) is None]:
        raise Refused(f"Programs are missing. Run: apt-get install {' '.join(missing)}")


def make_release(source: Source, options: argparse.Namespace) -> int:
    version = version_in(source.read)
    checks = list(check_version(source.read) if options.candidate else check_release(source))
    if not show(checks):
        raise Refused(f"{version} cannot be released: see the lines above that begin with MISSING.")
    require_programs(image=options.image)
    require_key(options.key)
    output = (options.output or ROOT / "dist" / version).absolute()
    build(source, options.work.absolute(), output, options.suites, image=options.image)
    sign(output, options.key)
    print(f"{version} is in {output}. docs/releasing.md says how to publish it.")
    return 0


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="print the checklist, with everything that is missing")
    test = commands.add_parser("test", help="run the tests of the checklist, and record the ones that pass")
    test.add_argument("targets", nargs="*", metavar="TARGET", help="make targets (default: all of the checklist)")
    make = commands.add_parser(
        "build",
        help="build and sign the artifacts into dist/VERSION",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    make.add_argument("--key", required=True, help="id of a secret key of gpg, which signs the checksums")
    make.add_argument("--image", action="store_true", help="build the archive of the image too")
    make.add_argument(
        "--candidate", action="store_true", help="build without tests, tag and a checkout without changes"
    )
    make.add_argument("--suites", nargs="*", default=list(SUITES), help="releases of Debian (default: bookworm trixie)")
    make.add_argument("--output", type=Path, help="another folder than dist/VERSION")
    make.add_argument("--work", type=Path, default=RUN / "build", help="folder of the clean checkout")
    for command in (check, test, make):
        command.add_argument("--commit", default="HEAD", help="default: HEAD")
    return parser.parse_args(words)


def main() -> int:
    options = parse()
    try:
        source = Source.of(options.commit)
        if options.command == "check":
            return 0 if show(list(check_release(source))) else 1
        if options.command == "test":
            return run_tests(source, options.targets)
        return make_release(source, options)
    except Refused as error:
        print(error, file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"{shlex.join(str(word) for word in error.cmd)} failed with {error.returncode}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
