"""`mailwarden support-bundle`: facts about this installation for a support request, without secrets and addresses.

Security: everything is left out that is not known to be harmless. Numbers, switches and a few choices of settings
remain, event names and numbers of log lines, plain words and short numbers of the doctor's sentences.
"""

import argparse
import asyncio
import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path

import aiohttp

from mailwarden import __version__
from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.cli.command import Command, add_config_option
from mailwarden.cli.doctor import check_host
from mailwarden.cli.installation import Installation, read_installation
from mailwarden.database.migrations import pending
from mailwarden.engines.table import ENGINES
from mailwarden.errors import CommandError, MailwardenError
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.serving.tls import client_context
from mailwarden.settings.effective import DEFAULT, Setting, effective

REMOVED = "(removed)"
MAX_LOG_LINES = 20_000
_TIMEOUT = 10.0

# Settings whose text is one of a few words of ours.
_SHOWN_SETTINGS = re.compile(
    r"(onEngineFailure|workers\.sandbox|console\.previewSandbox|log\.level|scanSources\.(restApi|smtp\.mode)"
    r"|scanSources\.[A-Za-z]+\.quarantineAs|engines\.[a-z]+\.type)$"
)
_TYPES = "|".join(engine.type_name for engine in ENGINES)
_OTHER_ENGINE = re.compile(rf"engines\.(?!(?:{_TYPES})\.).*\.([A-Za-z]+)$")  # the operator chose its name
_NUMBER_OR_SWITCH = re.compile(r"(-?[0-9]{1,10}(\.[0-9]{1,6})?|true|false|on|)$")
# Words of our own sentences: letters with a hyphen or an apostrophe, and short numbers with a unit.
_PLAIN_WORD = re.compile(r"[(`]?[A-Za-z]+(?:['-][A-Za-z]+)*[`)]?[.,;:]?$")
_SHORT_NUMBER = re.compile(r"\(?-?[0-9]{1,7}(?:[.,][0-9]{1,3}){0,2}(?:[a-zA-Z%]{1,3})?\)?[.,;:]?$")
_LONGEST_WORD = 24
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,60}$")
_FIELD = re.compile(r"[a-z][a-z_]{0,40}$")
_LARGEST_NUMBER = 1e11
_DOTTED = re.compile(r"[a-z_]+(\.[a-z_]+)*$")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z?$")
_TYPE = re.compile(r"[A-Za-z]{1,60}$")
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
_SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[0-9.eE+-]+|NaN|[+-]Inf)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_SHOWN_LABELS = frozenset(
    {"decision", "engine", "kind", "le", "outcome", "pool", "reason", "result", "role", "route", "status", "step"}
    | {"type", "verdict", "version", "worker"}
)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9_+./{}-]{0,60}$")


def mask(text: str) -> str:
    """Return a sentence with plain words and short numbers alone; the rest may be an address, a name or a secret."""
    return " ".join(word if _is_plain(word) else "…" for word in text.split())


def _is_plain(word: str) -> bool:
    return len(word) <= _LONGEST_WORD and bool(_PLAIN_WORD.match(word) or _SHORT_NUMBER.match(word))


def shown_settings(settings: Iterable[Setting]) -> list[dict[str, str]]:
    """Return the settings with their values where these are harmless, and whether the file or the default sets them."""
    return [
        {
            "key": _OTHER_ENGINE.sub(r"engines.?.\1", setting.key),
            "value": setting.value if _is_harmless(setting) else REMOVED,
            "from": "default" if setting.source == DEFAULT else "file",
        }
        for setting in settings
    ]


def _is_harmless(setting: Setting) -> bool:
    return bool(_NUMBER_OR_SWITCH.match(setting.value) or _SHOWN_SETTINGS.match(setting.key))


def shown_log_line(line: str) -> str | None:
    """Return a log line with its event, time, level, numbers and the places of an exception; None if it is no event."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not _EVENT.match(str(entry.get("event", ""))):
        return None
    kept: dict[str, object] = {"event": entry["event"]}
    if entry.get("level") in _LEVELS:
        kept["level"] = entry["level"]
    for name, pattern in (("timestamp", _TIME), ("module", _DOTTED), ("program", _DOTTED)):
        if pattern.match(str(entry.get(name, ""))):
            kept[name] = entry[name]
    kept |= {name: value for name, value in entry.items() if _FIELD.match(name) and _is_measure(value)}
    if isinstance(entry.get("exception"), list):
        kept["exception"] = [_shown_exception(each) for each in entry["exception"] if isinstance(each, dict)]
    return json.dumps(kept, separators=(",", ":"))


def _is_measure(value: object) -> bool:
    return isinstance(value, bool | int | float) and abs(value) < _LARGEST_NUMBER


def _shown_exception(exception: Mapping[str, object]) -> dict[str, object]:
    """Return the class of an exception and the lines of our code that it came through, without its text."""
    frames = exception.get("frames")
    places = [
        f"{str(frame['filename']).rpartition('/mailwarden/')[2]}:{frame['lineno']}"
        for frame in (frames if isinstance(frames, list) else ())
        if isinstance(frame, dict) and "/mailwarden/" in str(frame.get("filename")) and "lineno" in frame
    ]
    name = str(exception.get("exc_type"))
    return {"type": name if _TYPE.match(name) else REMOVED, "places": places}


def shown_metrics(page: str) -> Iterator[str]:
    """Yield the samples of a metrics page; a label that may name a host or a person loses its value."""
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        labels = ",".join(
            f'{name}="{value if name in _SHOWN_LABELS and _LABEL_VALUE.match(value) else REMOVED}"'
            for name, value in _LABEL.findall(sample["labels"] or "")
        )
        yield f"{sample['name']}{{{labels}}} {sample['value']}" if labels else f"{sample['name']} {sample['value']}"


def host_facts() -> dict[str, object]:
    """Return what is known of this host without its name: versions, memory, processors, kernel features."""
    facts: dict[str, object] = {
        "mailwarden": __version__,
        "python": platform.python_version(),
        "kernel": re.sub(r"[^0-9.].*", "", platform.release()),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "memoryMiB": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name, path in (("debian", "/etc/debian_version"), ("securityModules", "/sys/kernel/security/lsm")):
        try:
            facts[name] = mask(Path(path).read_text("ascii").strip().replace(",", " "))
        except (OSError, ValueError):
            facts[name] = "unknown"
    return facts


async def _contents(installation: Installation, folder: Path, logs: Iterable[Path]) -> AsyncIterator[tuple[str, str]]:
    """Yield the names and texts of the files of a bundle."""
    yield "host.json", _json(host_facts())
    checks = [
        {"state": line.state, "name": mask(line.name), "seen": mask(line.seen), "remedy": mask(line.remedy)}
        async for line in check_host(folder)
    ]
    yield "doctor.json", _json(checks)
    for path, config in ((GUARD_PATH, installation.guard), (ABBY_PATH, installation.abby)):
        if config is not None:
            yield f"settings-{Path(path).stem}.json", _json(shown_settings(effective(folder / path, config, path)))
    try:
        async with asyncio.timeout(_TIMEOUT):
            yield "database.json", _json({"pendingMigrations": await pending(installation.database_url)})
    except (MailwardenError, OSError):
        yield "database.json", _json({"pendingMigrations": "the database did not answer"})
    async for number, page in _guard_metrics(installation):
        yield f"metrics-guard-{number}.txt", "\n".join(shown_metrics(page)) + "\n"
    for number, log in enumerate(logs, 1):
        yield f"log-{number}.jsonl", _read_log(log)


async def _guard_metrics(installation: Installation) -> AsyncIterator[tuple[int, str]]:
    """Yield the metrics pages of the guards in abby.yml that answer."""
    folder, abby = installation.folder, installation.abby
    if abby is None:
        return
    context = client_context(folder / abby.tls.ca, folder / abby.tls.certificate, folder / abby.tls.key)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        for number, host in enumerate(abby.service_providers.core.hosts, 1):
            try:
                async with session.get(f"{host.rstrip('/')}/metrics") as response:
                    yield number, await response.text()
            except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
                yield number, ""


def _read_log(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None
    shown = [line for each in lines[-MAX_LOG_LINES:] if (line := shown_log_line(each))]
    left_out = len(lines) - len(shown)
    return "\n".join([*shown, json.dumps({"linesLeftOut": left_out})]) + "\n"


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


async def _write(options: argparse.Namespace) -> int:
    folder = options.config.resolve()
    installation = read_installation(folder)
    try:
        descriptor = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{options.file} exists. Choose another name.") from None
    except OSError as error:
        raise CommandError(f"Cannot write {options.file}: {error.strerror}.") from None
    with os.fdopen(descriptor, "wb") as output, tarfile.open(fileobj=output, mode="w:gz") as bundle:
        async for name, text in _contents(installation, folder, options.log):
            raw = text.encode()
            member = tarfile.TarInfo(f"mailwarden-support/{name}")
            member.size, member.mtime, member.mode = len(raw), int(time.time()), 0o600
            bundle.addfile(member, io.BytesIO(raw))
            print(f"{name:<24} {len(raw):>9,} bytes", flush=True)
    print(f"{options.file}: look through it before you send it.")
    return 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="bundle to write, a .tar.gz")
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        action="append",
        default=[],
        help="log of abby or guard, such as the output of `journalctl -o cat -u mailwarden-all`; may be repeated",
    )
    add_config_option(parser)


COMMAND = Command(
    example="mailwarden support-bundle mailwarden-support.tar.gz --log guard.log",
    arguments=_arguments,
    run=lambda options: asyncio.run(_write(options)),
)
