"""`make compare-findings`: the findings and verdicts of two versions of the code, message by message.

Runs the worker's steps of both versions on every message of the folders and archives, without engines. Prints the CPU
of both, and every message whose findings or verdict differ: by its name, never by its text. Ends with 1 if one differs.

Security: the messages are hostile; they stay outside of the repository, and nothing of them is executed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from evaluate.progress import Meter
from mailwarden.analysis.pipeline.worker_steps import Job, examine
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy

RUN = Path("run/findings")
ENVELOPE = Envelope("sender@sender.example", ("bob@company.example",), "203.0.113.77", "mail.sender.example")


class Examined(Struct, frozen=True):
    """The result of the worker for one message."""

    name: str
    findings: tuple[str, ...]
    verdict: str
    milliseconds: float


def main() -> int:
    arguments = _read_arguments()
    if arguments.record:
        arguments.record.write_bytes(msgspec.json.encode(record(arguments.messages)))
        return 0
    RUN.mkdir(parents=True, exist_ok=True)
    before = _record_base(arguments.base, arguments.messages)
    return compare(before, record(arguments.messages))


def compare(earlier: list[Examined], later: list[Examined]) -> int:
    """Print what differs, and return 1 if anything does."""
    before, after = _by_name(earlier), _by_name(later)
    differing = [name for name in before | after if _differs(before.get(name), after.get(name))]
    for name in differing:
        was, now = before.get(name), after.get(name)
        print(f"{name}: {was.verdict if was else 'missing'} -> {now.verdict if now else 'missing'}")
        for sign, one, other in (("-", was, now), ("+", now, was)):
            known = other.findings if other else ()
            print(
                "".join(f"  {sign} {finding}\n" for finding in (one.findings if one else ()) if finding not in known),
                end="",
            )
    each = [after[name].milliseconds / before[name].milliseconds for name in before if name in after]
    if each:
        print(f"CPU of the worker's steps, after to before: median {statistics.median(each):.2f}")
    for title, results in (("before", before), ("after", after)):
        used = [one.milliseconds for one in results.values()]
        print(f"{title:>6}: {sum(used) / len(used):.2f} ms a message, median {statistics.median(used):.2f} ms")
    print(f"{len(before | after)} messages, {len(differing)} with other findings or another verdict")
    return int(bool(differing))


def _differs(one: Examined | None, other: Examined | None) -> bool:
    return one is None or other is None or (one.findings, one.verdict) != (other.findings, other.verdict)


def _by_name(results: list[Examined]) -> dict[str, Examined]:
    """Return the results by message; a version may write fields that have no value, or leave them out."""
    return {one.name: replace(one, findings=tuple(map(_with_values, one.findings))) for one in results}


def _with_values(finding: str) -> str:
    return msgspec.json.encode(_drop_empty(msgspec.json.decode(finding))).decode()


def _drop_empty(value: object) -> object:
    if isinstance(value, dict):
        kept = {key: _drop_empty(each) for key, each in value.items()}
        return {key: each for key, each in sorted(kept.items()) if each not in (None, "", {}, [])}
    return [_drop_empty(each) for each in value] if isinstance(value, list) else value


def _record_base(commit: str, messages: list[Path]) -> list[Examined]:
    """Return the results of another commit, checked out beside this one."""
    known = subprocess.run(["git", "rev-parse", commit], check=True, capture_output=True, text=True).stdout.strip()
    file = (RUN / f"{known[:12]}.json").resolve()
    checkout = (RUN / f"checkout-{os.getpid()}").resolve()
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(checkout), known], check=True)
    try:
        given = [part for folder in messages for part in ("--messages", str(folder.resolve()))]
        compiling = ["mailwarden", "compile"]  # its own phrases: without them the CPU of both could not be compared
        for command in (compiling, ["evaluate.findings", "--record", str(file), *given]):
            subprocess.run(
                [sys.executable, "-m", *command],
                check=True,
                cwd=checkout,
                env=os.environ | {"PYTHONPATH": str(checkout / "src")},
            )
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], check=True)
    return msgspec.json.decode(file.read_bytes(), type=list[Examined])


def record(messages: list[Path]) -> list[Examined]:
    """Run the worker's steps on every message."""
    found = [pair for place in messages for pair in _read_messages(place)]
    meter = Meter(len(found))
    policy = load_policy()
    results = []
    for _ in examine(Job(b"Subject: first\r\n\r\n")):  # analyzers load their data
        pass
    for name, raw in found:
        started = time.process_time()
        reports = tuple(frame.report for frame in examine(Job(raw, envelope=ENVELOPE)))
        used = (time.process_time() - started) * 1000
        findings = {msgspec.json.encode((each.analyzer, each.findings, each.failure, each.omitted)) for each in reports}
        verdict = judge(Evidence(reports), policy).verdict
        results.append(Examined(name, tuple(sorted(one.decode() for one in findings)), verdict, used))
        meter.step()
    return results


def _read_messages(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the messages of a folder, and of the archive messages.tar.xz in it."""
    for file in sorted(place.rglob("*.eml")):
        yield f"{place.name}/{file.relative_to(place)}", file.read_bytes()
    archive = place / "messages.tar.xz"
    if archive.is_file():
        with tarfile.open(archive) as members:
            for member in members:
                content = members.extractfile(member) if member.isfile() else None
                if content and member.name.endswith(".eml"):
                    yield f"{place.name}/{member.name.removeprefix('./')}", content.read()


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evaluate.findings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m evaluate.findings --base v1.0.0 --messages FOLDER --messages OTHER",
    )
    parser.add_argument("--messages", type=Path, action="append", required=True, help="folder; may be repeated")
    parser.add_argument("--base", default="HEAD", help="commit to compare with (default: %(default)s)")
    parser.add_argument("--record", type=Path, help="only write the results of this version to a file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
