"""`mailwarden policy`: compare a changed policy with stored evidence, and test a policy with sample messages.

`test` without `--url` calls no engine: it judges the findings of the local analyzers, without lists and sender history.

Security: evidence and samples contain text of unknown senders. `diff` prints only names of rules and messages, verdicts
and decisions, without control characters. `test` examines samples in a worker process under a deadline, as guard does.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.command import Command, add_action, add_address_options
from mailwarden.cli.database import add_database_options, history_of, query_database
from mailwarden.cli.scan import addresses_of, make_parameters, submit
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, plain_problem
from mailwarden.history.store import MAX_ROWS, Cursor
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.place import shorten
from mailwarden.model.scan import Scan
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.pipeline.collector import Collector
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rejudge import Difference, PolicyChoice, RuleChange, Stored, compare, stored_of
from mailwarden.policy.rules import Policy, load_policy, read_weights, reweigh, tag_problems
from mailwarden.search.query import parse_query
from mailwarden.serving.spool import Spooled
from mailwarden.settings.reader import Mistake, Mistakes, read

MAX_MESSAGES = 10_000
MAX_LINE = 16 * 1024 * 1024
MAX_SHOWN = 50  # in the text output; JSON has all
NAME_LENGTH = 120

MAX_SAMPLES = 5_000
MAX_BYTES = 52_428_800
SECONDS = 30.0  # for one message
MEMORY = 1_024  # MiB of the worker


class SampleEnvelope(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The envelope of a sample; the default addresses are those of the header."""

    sender: str | None = None
    recipients: tuple[str, ...] = ()
    remote_address: str | None = None
    helo: str | None = None


class Expectation(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The expected verdict and decision, and the tags that must and must not be present."""

    verdict: Verdict | tuple[Verdict, ...] = ()
    decision: Decision | tuple[Decision, ...] = ()
    expect: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    profile: Profile = Profile.BALANCED
    envelope: SampleEnvelope = SampleEnvelope()

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not (self.verdict or self.decision or self.expect or self.refuse):
            yield "verdict", "nothing is expected: say a verdict, a decision, or tags to expect or refuse"
        for key, tags in (("expect", self.expect), ("refuse", self.refuse)):
            for tag in tags:
                yield from ((key, problem) for problem in tag_problems(tag))
        for tag in set(self.expect) & set(self.refuse):
            yield "refuse", f"`{tag}` is expected and refused"

    def complaints(self, verdict: Verdict, decision: Decision, tags: Collection[str]) -> Iterator[str]:
        """Yield each difference from the expectation."""
        if self.verdict and verdict not in _several(self.verdict):
            yield f"verdict {verdict}, not {' or '.join(_several(self.verdict))}"
        if self.decision and decision not in _several(self.decision):
            yield f"decision {decision}, not {' or '.join(_several(self.decision))}"
        yield from (f"without {tag}" for tag in self.expect if tag not in tags)
        yield from (f"with {tag}" for tag in self.refuse if tag in tags)


def _several(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_action(
        actions,
        "diff",
        "show what other rules or weights would have decided for stored evidence",
        'mailwarden policy diff --set html.link-mismatch=80 --query "verdict:clean" --last 5000',
        _add_diff_options,
    )
    add_action(
        actions,
        "test",
        "judge sample messages and compare the results with their expectations",
        "mailwarden policy test samples/ --set html.link-mismatch=80",
        _add_test_options,
    )


def _run(options: argparse.Namespace) -> int:
    return _diff(options) if options.action == "diff" else _test(options)


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add `--rules` and `--set`."""
    parser.add_argument(
        "--rules", type=Path, metavar="FOLDER",
        help="another policy: a folder with rules/*.yml, and tags.yml and profiles.yml where they are others",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="weights", action="append", default=[], metavar="RULE=WEIGHT",
        help="another weight for a rule; repeatable",
    )  # fmt: skip


def chosen_policy(options: argparse.Namespace) -> Policy:
    policy = load_policy(options.rules) if options.rules else load_policy()
    try:
        return reweigh(policy, read_weights(options.weights))
    except ValueError as error:
        raise CommandError(str(error)) from None


class _Sample(Struct, frozen=True):
    path: str = ""


class _Line(Struct, frozen=True):
    """One line of an evidence file, as `make evaluate` writes it, or with its own name or ggrid."""

    evidence: Evidence
    name: str = ""
    ggrid: str = ""
    sample: _Sample = _Sample()


def _add_diff_options(parser: argparse.ArgumentParser) -> None:
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


def _diff(options: argparse.Namespace) -> int:
    if not (options.rules or options.weights or options.profile):
        raise CommandError("Choose the difference: --rules FOLDER, --set RULE=WEIGHT or --profile NAME.")
    if not 1 <= options.last <= MAX_MESSAGES:
        raise CommandError(f"--last is 1 to {MAX_MESSAGES:,}.")
    other = PolicyChoice(chosen_policy(options), Profile(options.profile) if options.profile else None)
    messages = _read_file(options.file, options.last) if options.file else _read_history(options)
    difference = compare(messages, PolicyChoice(load_policy()), other)
    print(_difference_json(difference) if options.output == "json" else render(difference))
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
                    raise CommandError(
                        f"{path}:{number}: is not a line of evidence: {plain_problem(str(error))}."
                    ) from None
                name = line.ggrid or line.name or line.sample.path or f"line {number}"
                yield Stored(name, line.evidence, Assignment(UUID(int=0), AssignedBy.REQUEST))
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None


def _read_history(options: argparse.Namespace) -> Sequence[Stored]:
    async def ask(database: Database) -> list[Stored]:
        scope = Scope.deployment()
        tenants = {tenant.name: tenant.uid for tenant in await TenantStore(database).list(scope)}
        query = parse_query(options.query, tenants=tenants)
        found: list[Stored] = []
        place: Cursor | None = None
        async with history_of(options, database) as store:
            while (room := options.last - len(found)) > 0:
                page = await store.search(scope, query, place, min(room, MAX_ROWS))
                requests = await store.find_many(scope, [Cursor.of(row) for row in page.rows])
                found += [stored_of(requests[place]) for row in page.rows if (place := Cursor.of(row)) in requests]
                if page.next is None:
                    break
                place = page.next
        return found

    return query_database(options, ask)


def render(difference: Difference) -> str:
    """Return the difference as text: the counts, and the messages that change."""
    lines = [f"{difference.looked_at:,} messages judged by both policies.", ""]
    lines += _count_lines("verdict", difference.verdicts)
    lines += _count_lines("decision", difference.decisions)
    changes = difference.changes
    lines.append(f"{len(changes):,} change{':' if changes else '.'}")
    for change in changes[:MAX_SHOWN]:
        before, after = change.before, change.after
        lines.append(
            f"  {shorten(change.name, NAME_LENGTH)}  {before.verdict}/{before.decision} -> "
            f"{after.verdict}/{after.decision}  {_rule_changes(change.rules)}"
        )
    if len(changes) > MAX_SHOWN:
        lines.append(f"  and {len(changes) - MAX_SHOWN:,} more; -o json has them all")
    if difference.undetermined:
        lines.append(
            f"{difference.undetermined:,} cannot be judged: they need an engine's result without an allowed file."
        )
    return "\n".join(lines)


def _count_lines(
    head: str, counts: Mapping[Verdict, tuple[int, int]] | Mapping[Decision, tuple[int, int]]
) -> Iterator[str]:
    yield f"{head:<12}{'before':>8}{'after':>8}"
    for name, (before, after) in counts.items():
        changed = f"{after - before:>+8}" if after != before else ""
        yield f"  {name:<10}{before:>8}{after:>8}{changed}"
    yield ""


def _rule_changes(rules: Iterable[RuleChange]) -> str:
    return ", ".join(f"{rule.rule} {rule.before} -> {rule.after}" for rule in rules) or "by the profile alone"


def _difference_json(difference: Difference) -> str:
    record = {
        "lookedAt": difference.looked_at,
        "untold": difference.undetermined,
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


class Sample(Struct, frozen=True):
    name: str
    message: Path
    expectation: Expectation


class Result(Struct, frozen=True):
    """The result of a sample; it passes if there are no complaints."""

    sample: str
    verdict: Verdict
    decision: Decision
    tags: tuple[str, ...]
    complaints: tuple[str, ...]


def _add_test_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="messages (.eml), each with its .yml beside it")
    add_policy_options(parser)
    parser.add_argument("--yara", default="", metavar="FOLDER", help="folder with YARA rules of your own")
    parser.add_argument("--tenant", metavar="TENANT", help="name or UUID of the tenant to scan for, with --url")
    parser.add_argument("--token-file", type=Path, help="file with the token for --url (default: $MAILWARDEN_TOKEN)")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the output")
    add_address_options(parser)


def _test(options: argparse.Namespace) -> int:
    samples = find_samples(options.folder)
    if options.url and (options.rules or options.weights or options.yara):
        raise CommandError("A running abby has its own policy: leave out --rules, --set and --yara, or --url.")
    policy = chosen_policy(options)
    results = asyncio.run(_gather(options, samples, policy))
    failed = sum(bool(result.complaints) for result in results)
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        print(
            f"{len(results)} samples, {failed} not as expected."
            if failed
            else f"{len(results)} samples, all as expected."
        )
    return 1 if failed else 0


def find_samples(folder: Path) -> Sequence[Sample]:
    """Return the samples of the folder and its subfolders, or raise Mistakes with all errors in them."""
    messages = sorted(folder.rglob("*.eml"))[: MAX_SAMPLES + 1]
    if not messages:
        raise CommandError(f"{folder} holds no messages: put *.eml there, each with a .yml of the same name.")
    if len(messages) > MAX_SAMPLES:
        raise CommandError(f"{folder} holds more than {MAX_SAMPLES:,} messages.")
    samples: list[Sample] = []
    mistakes: list[Mistake] = []
    for message in messages:
        expected = message.with_suffix(".yml")
        if not expected.is_file():
            mistakes.append(Mistake(str(expected), 1, "", f"is missing: it says what is expected of {message.name}"))
            continue
        try:
            samples.append(Sample(str(message.relative_to(folder)), message, read(expected, Expectation)))
        except Mistakes as found:
            mistakes.extend(found.mistakes)
    if mistakes:
        raise Mistakes(mistakes)
    return samples


async def _gather(options: argparse.Namespace, samples: Sequence[Sample], policy: Policy) -> list[Result]:
    """Collect the results, and print each when it is available."""
    results = []
    source = _scan(options, samples) if options.url else _judge(samples, policy, options.yara)
    async for result in source:
        results.append(result)
        if options.output == "text":
            print(_result_line(result), flush=True)
    return results


async def _judge(samples: Sequence[Sample], policy: Policy, yara: str) -> AsyncIterator[Result]:
    """Judge each sample by the local analyzers alone."""
    workers = WorkerPool(1, MEMORY, Timeouts(), yara)
    await workers.start()
    try:
        collector = Collector(workers, ())
        for sample in samples:
            raw, expected = _read_message(sample.message), sample.expectation
            given = expected.envelope
            sender = given.sender if given.sender is not None else next(iter(addresses_of(raw, b"from")), "")
            recipients = given.recipients or tuple(addresses_of(raw, b"to"))
            envelope = Envelope(sender, recipients, given.remote_address, given.helo)
            assignment = Assignment(UUID(int=0), AssignedBy.REQUEST, expected.profile)
            scan = Scan("policy test", envelope, (RecipientGroup(assignment, recipients),), Spooled.of(raw))
            [collected] = await collector.collect(scan, time.monotonic() + SECONDS)
            judgement = judge(collected.evidence, policy)
            ruling = decide(judgement, assignment, policy)
            tags = tuple(sorted({*judgement.tags, *ruling.tags}))
            yield _compared(sample, judgement.verdict, ruling.decision, tags)
    finally:
        await workers.stop()


async def _scan(options: argparse.Namespace, samples: Sequence[Sample]) -> AsyncIterator[Result]:
    """Scan each sample with a running abby."""
    for sample in samples:
        raw, given = _read_message(sample.message), sample.expectation.envelope
        asked = argparse.Namespace(
            **vars(options)
            | {
                "sender": given.sender,
                "recipients": list(given.recipients),
                "ip": given.remote_address,
                "helo": given.helo,
            }
        )
        result, _ = await submit(asked, raw, make_parameters(asked, raw))
        yield _compared(sample, Verdict(result.verdict), Decision(result.decision), tuple(result.tags))


def _compared(sample: Sample, verdict: Verdict, decision: Decision, tags: tuple[str, ...]) -> Result:
    complaints = tuple(sample.expectation.complaints(verdict, decision, tags))
    return Result(sample.name, verdict, decision, tags, complaints)


def _read_message(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(f"{path} is larger than a message may be.")
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None


def _result_line(result: Result) -> str:
    said = f"{result.verdict}/{result.decision}"
    if not result.complaints:
        return f"ok    {result.sample}  {said}"
    return f"FAIL  {result.sample}  {said}: {'; '.join(result.complaints)} (tags: {', '.join(result.tags) or '-'})"


COMMAND = Command(
    example="mailwarden policy diff --set html.link-mismatch=80",
    arguments=_arguments,
    run=_run,
)
