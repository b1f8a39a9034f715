"""`mailwarden engines`: installs the settings that Mailwarden needs of the engines and of Postfix.

A file or a setting of the operator is never changed: where it differs, the command says so and leaves it.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from mailwarden.cli.command import Command, add_action
from mailwarden.engines.engine import ShippedFiles
from mailwarden.engines.table import ENGINES
from mailwarden.errors import CommandError

SHARED = Path("/usr/share/mailwarden")
POSTFIX = {"postfix-before-queue": "before-queue", "postfix-after-queue": "after-queue"}
_FRONT = "smtp/inet"  # the port that the internet reaches
# By the name of the program.
PROGRAMS = {shipped.program: shipped for engine in ENGINES if (shipped := engine.shipped_files) is not None}


_EVERY = " ".join((*PROGRAMS, "postfix-before-queue"))


class State(StrEnum):
    MISSING = "missing"
    PRESENT = "present"
    DIFFERS = "differs"


class Setting(Struct, frozen=True):
    """One file, or one setting of Postfix: the state on this host, and what to do if it differs."""

    place: str
    state: State
    hint: str = ""
    source: Path | None = None  # the shipped file
    words: tuple[str, ...] = ()  # the arguments of postconf that set it


class Service(Struct, frozen=True):
    """One service of master.cf (master(5)): its fields, and its `-o` options."""

    fields: tuple[str, ...]
    options: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.fields[0]}/{self.fields[1]}"


def file_settings(program: ShippedFiles, shipped: Path, root: Path) -> Iterator[Setting]:
    """Yield each shipped file of a program, compared with the file of the same name on this host."""
    for folder, target in program.folders:
        for source in sorted(path for path in (shipped / folder).iterdir() if path.is_file()):
            place = root / target / source.name
            if not place.exists():
                yield Setting(str(place), State.MISSING, source=source)
            elif place.read_bytes() == source.read_bytes():
                yield Setting(str(place), State.PRESENT, source=source)
            else:
                hint = f"it is kept; join both by hand: diff {place} {source}"
                yield Setting(str(place), State.DIFFERS, hint, source)


def postfix_settings(shipped: Path, home: Path) -> Iterator[Setting]:
    """Yield each setting of a Postfix set-up, compared with main.cf and master.cf of this host."""
    present = parameters((home / "main.cf").read_text("utf-8"))
    services = {service.name: service for service in parse_services((home / "master.cf").read_text("utf-8"))}
    for wanted in parse_services((shipped / "master.cf").read_text("utf-8")):
        yield from _service_settings(wanted, services.get(wanted.name), home / "master.cf")
    for key, value in parameters((shipped / "main.cf").read_text("utf-8")).items():
        words = ("-e", f"{key}={value}")
        yield _compared(f"{home / 'main.cf'}: {key}", value, present.get(key), words)


def _service_settings(wanted: Service, found: Service | None, file: Path) -> Iterator[Setting]:
    place = f"{file}: {wanted.name}"
    if wanted.name != _FRONT or found is None:
        state = State.MISSING if found is None else State.PRESENT
        yield Setting(place, state, words=("-M", f"{wanted.name}={' '.join(wanted.fields)}"))
    elif found.fields[-1] != wanted.fields[-1]:
        hint = f"it runs {found.fields[-1]}; give the options to your {wanted.fields[-1]} service by hand"
        yield Setting(place, State.DIFFERS, hint)
        return
    options = found.options if found is not None else {}
    for key, value in wanted.options.items():
        words = ("-P", f"{wanted.name}/{key}={value}")
        yield _compared(f"{place} -o {key}", value, options.get(key), words)


def _compared(place: str, wanted: str, found: str | None, words: tuple[str, ...]) -> Setting:
    if found is None:
        return Setting(place, State.MISSING, words=words)
    if found == wanted:
        return Setting(place, State.PRESENT, words=words)
    return Setting(place, State.DIFFERS, f"it is `{found}`, Mailwarden needs `{wanted}`; change it by hand")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of main.cf or master.cf: a line that starts with white space continues the one before."""
    kept: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace() and kept:
            kept[-1] += " " + line.strip()
        else:
            kept.append(line.strip())
    yield from kept


def parameters(text: str) -> dict[str, str]:
    """Return the parameters of a main.cf; the last value counts."""
    pairs = (line.partition("=") for line in _logical_lines(text))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def parse_services(text: str) -> list[Service]:
    """Return the services of a master.cf."""
    found = []
    for line in _logical_lines(text):
        fields, *options = re.split(r"\s+-o\s+", line)
        pairs = (option.partition("=") for option in options)
        values = {key.strip(): value.strip().strip("{}").strip() for key, _, value in pairs}
        found.append(Service(tuple(fields.split()), values))
    return found


def install_files(settings: Sequence[Setting]) -> list[Setting]:
    """Write the missing files, readable by all users; return them."""
    missing = [each for each in settings if each.state is State.MISSING]
    for setting in missing:
        place = Path(setting.place)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:  # fails if the file was created meanwhile
            file.write(setting.source.read_bytes() if setting.source is not None else b"")
        place.chmod(0o644)
    return missing


def install_postfix(settings: Sequence[Setting], home: Path) -> list[Setting]:
    """Set what is missing and return it; nothing if something differs, because half a set-up stops mail."""
    if any(each.state is State.DIFFERS for each in settings):
        return []
    missing = [each for each in settings if each.state is State.MISSING]
    for setting in missing:
        _postconf(home, *setting.words)
    return missing


def remove_files(settings: Sequence[Setting]) -> list[Setting]:
    """Remove the files that are as shipped; return them."""
    present = [each for each in settings if each.state is State.PRESENT]
    for setting in present:
        Path(setting.place).unlink()
    return present


def remove_postfix(settings: Sequence[Setting], home: Path) -> list[Setting]:
    """Take guard out of the path of mail: options of `smtp inet` and services of Mailwarden; main.cf stays."""
    taken = [
        each
        for each in settings
        if each.state is State.PRESENT and (each.words[0] == "-M" or each.words[1].startswith(f"{_FRONT}/"))
    ]
    for setting in taken:
        option, place = setting.words[0], setting.words[1].partition("=")[0]
        _postconf(home, f"{option}X", place)
    return taken


def _postconf(home: Path, *words: str) -> None:
    program = shutil.which("postconf", path="/usr/sbin:/usr/bin")
    if program is None:
        raise CommandError("postconf is not installed. Run: apt-get install postfix")
    done = subprocess.run(  # noqa: S603 - Postfix's own program, with settings of the shipped files
        [program, "-c", str(home), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise CommandError(f"postconf {' '.join(words)} failed: {done.stderr.strip()}")


def _engine(text: str) -> str:
    if text not in (*PROGRAMS, *POSTFIX):
        raise argparse.ArgumentTypeError(f"`{text}` is none of {', '.join((*PROGRAMS, *POSTFIX))}")
    return text


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text in (
        ("check", "compare the settings of this host's engines with the shipped ones; changes nothing"),
        ("install", "install the settings that are missing; a file that differs is kept"),
        ("remove", "remove the settings that are as shipped"),
    ):
        action = add_action(actions, name, text, f"mailwarden engines {name} {_EVERY}")
        action.add_argument(
            "engines",
            nargs="*",
            metavar="ENGINE",
            type=_engine,
            help=f"{', '.join((*PROGRAMS, *POSTFIX))} (default: the engines that are installed)",
        )
        action.add_argument(
            "--from",
            dest="shipped",
            type=Path,
            default=SHARED,
            metavar="FOLDER",
            help="shipped files (default: %(default)s)",
        )
        action.add_argument("--root", type=Path, default=Path("/"), help="root of the host (default: %(default)s)")


def _run(arguments: argparse.Namespace) -> int:
    shipped, root = arguments.shipped, arguments.root
    names = arguments.engines or [name for name, each in PROGRAMS.items() if (root / each.home).is_dir()]
    if not names:
        raise CommandError(f"None of {', '.join(PROGRAMS)} is installed on this host. Name the engine to set up.")
    if not shipped.is_dir():
        raise CommandError(f"There are no shipped settings in {shipped}. Name their folder: --from FOLDER/deploy")
    wrong, changed = False, []
    for name in names:
        try:
            settings, done = _act(name, arguments.action, shipped, root)
        except OSError as error:
            raise CommandError(f"Cannot use {error.filename}: {error.strerror}.") from None
        wrong |= any(setting.state is State.DIFFERS for setting in settings)
        wrong |= arguments.action == "check" and any(setting.state is State.MISSING for setting in settings)
        if done:
            changed.append(PROGRAMS[name].service if name in PROGRAMS else "postfix")
    if changed:
        print(f"Now run: systemctl daemon-reload && systemctl restart {' '.join(changed)}")
    return 1 if wrong else 0


def _act(name: str, action: str, shipped: Path, root: Path) -> tuple[list[Setting], list[Setting]]:
    """Carry out the action for one engine and print each setting; return all settings, and the changed ones."""
    home = root / "etc/postfix"
    own = name in PROGRAMS
    found = (
        file_settings(PROGRAMS[name], shipped, root)
        if own
        else postfix_settings(shipped / "postfix" / POSTFIX[name], home)
    )
    settings, done = list(found), list[Setting]()
    if action == "install":
        done = install_files(settings) if own else install_postfix(settings, home)
    elif action == "remove":
        done = remove_files(settings) if own else remove_postfix(settings, home)
    for setting in settings:
        label = {"install": "installed", "remove": "removed"}[action] if setting in done else str(setting.state)
        print(f"{label:10} {setting.place}{f' ({setting.hint})' if setting.hint else ''}")
    return settings, done


COMMAND = Command(
    example=f"mailwarden engines install {_EVERY}",
    arguments=_arguments,
    run=_run,
)
