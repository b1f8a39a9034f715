"""`mailwarden policy diff`: what other rules or weights would have decided for stored evidence.

Security: evidence holds what strangers wrote; only names of rules and messages, verdicts and decisions are printed,
and names lose their control characters.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.access.tenants import TenantStore
from mailwarden.cli.command import Command
from mailwarden.cli.database import add_database_options, ask_database
from mailwarden.cli.policy_choice import add_policy_options, chosen_policy
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.history.opening import open_history
from mailwarden.history.query import parse_query
from mailwarden.history.store import MAX_ROWS, Cursor
from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scope import Scope
from mailwarden.model.shown_text import shorten
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.difference import Difference, Point, RuleChange, Stored, compare, stored_of
from mailwarden.policy.rules import load_policy

MAX_MESSAGES = 10_000
MAX_LINE = 16 * 1024 * 1024
MAX_SHOWN = 50  # in text; JSON has them all
NAME_LENGTH = 120


class _Sample(Struct, frozen=True):
    path: str = ""


class _Line(Struct, frozen=True):
    """One line of a file of evidence, as `make evaluate` writes it, or with a name or a ggrid of its own."""

    evidence: Evidence
    name: str = ""
    ggrid: str = ""
    sample: _Sample = _Sample()


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_policy_options(parser)
    parser.add_argument(
        "--profile", choices=[profile.value for profile in Profile], help="another profile (default: each tenant's own)"
    )
    parser.add_argument("--file", type=Path, help="JSON lines with evidence, instead of history")
    parser.add_argument(
        "--query", default="", help="messages of history to judge, in the syntax of the console's search"
    )
    parser.add_argument(
        "--last", type=int, default=1000, metavar="N",
        help=f"maximum number of messages, newest first (default: 1000; at most {MAX_MESSAGES:,})",
    )  # fmt: skip
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if a message changes")
    add_database_options(parser)


def _run(options: argparse.Namespace) -> int:
    if not (options.rules or options.weights or options.profile):
        raise CommandError("Say what is to differ: --rules FOLDER, --set RULE=WEIGHT or --profile NAME.")
    if not 1 <= options.last <= MAX_MESSAGES:
        raise CommandError(f"--last is 1 to {MAX_MESSAGES:,}.")
    other = Point(chosen_policy(options), Profile(options.profile) if options.profile else None)
    messages = _read_file(options.file, options.last) if options.file else _read_history(options)
    difference = compare(messages, Point(load_policy()), other)
    print(_encode(difference) if options.output == "json" else render(difference))
    return 1 if options.exit_code and difference.changes else 0


def _read_file(path: Path, limit: int) -> Iterator[Stored]:
    decoder = msgspec.json.Decoder(_Line)
    try:
        with path.open("rb") as file:
            for number in range(1, limit + 1):
                text = file.readline(MAX_LINE)
                if not text:
                    return
                if not text.strip():
                    continue
                try:
                    line = decoder.decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise CommandError(f"{path}:{number}: is no evidence: {error}.") from None
                name = line.ggrid or line.name or line.sample.path or f"line {number}"
                yield Stored(name, line.evidence, Assignment(UUID(int=0), AssignedBy.REQUEST))
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None


def _read_history(options: argparse.Namespace) -> Sequence[Stored]:
    async def ask(database: Database) -> list[Stored]:
        scope = Scope.deployment()
        tenants = {tenant.name: tenant.uid for tenant in await TenantStore(database).list(scope)}
        store = open_history(database)
        query = parse_query(options.query, tenants=tenants)
        found: list[Stored] = []
        before: Cursor | None = None
        while (room := options.last - len(found)) > 0:
            page = await store.search(scope, query, before, min(room, MAX_ROWS))
            requests = [await store.find(Scope.of(row.tenant), row.ggrid) for row in page.rows]
            found += [stored_of(request) for request in requests if request]
            if page.older is None:
                break
            before = page.older
        return found

    return ask_database(options, ask)


def render(difference: Difference) -> str:
    """Return the difference for a person: the counts, and what changes."""
    lines = [f"{difference.looked_at:,} messages judged by both policies.", ""]
    lines += _counts("verdict", difference.verdicts)
    lines += _counts("decision", difference.decisions)
    changes = difference.changes
    lines.append(f"{len(changes):,} change{':' if changes else '.'}")
    for change in changes[:MAX_SHOWN]:
        before, after = change.before, change.after
        lines.append(
            f"  {shorten(change.name, NAME_LENGTH)}  {before.verdict}/{before.decision} -> "
            f"{after.verdict}/{after.decision}  {_rules(change.rules)}"
        )
    if len(changes) > MAX_SHOWN:
        lines.append(f"  and {len(changes) - MAX_SHOWN:,} more; -o json has them all")
    if difference.untold:
        lines.append(
            f"{difference.untold:,} cannot be told: only an engine knows what is left without an allowed file."
        )
    return "\n".join(lines)


def _counts(head: str, counts: Mapping[Verdict, tuple[int, int]] | Mapping[Decision, tuple[int, int]]) -> Iterator[str]:
    yield f"{head:<12}{'before':>8}{'after':>8}"
    for name, (before, after) in counts.items():
        changed = f"{after - before:>+8}" if after != before else ""
        yield f"  {name:<10}{before:>8}{after:>8}{changed}"
    yield ""


def _rules(rules: Iterable[RuleChange]) -> str:
    return ", ".join(f"{each.rule} {each.before} -> {each.after}" for each in rules) or "by the profile alone"


def _encode(difference: Difference) -> str:
    record = {
        "lookedAt": difference.looked_at,
        "untold": difference.untold,
        "verdicts": _pairs(difference.verdicts),
        "decisions": _pairs(difference.decisions),
        "changes": [
            {
                "message": change.name,
                "before": change.before,
                "after": change.after,
                "rules": change.rules,
            }
            for change in difference.changes
        ],
    }
    return msgspec.json.format(msgspec.json.encode(record)).decode()


def _pairs(counts: Mapping[Verdict, tuple[int, int]] | Mapping[Decision, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {str(name): {"before": before, "after": after} for name, (before, after) in counts.items()}


COMMAND = Command(
    example='mailwarden policy diff --set html.link-mismatch=80 --query "verdict:clean" --last 5000',
    arguments=_arguments,
    run=_run,
)
