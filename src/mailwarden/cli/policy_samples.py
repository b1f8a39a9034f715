"""`mailwarden policy test`: sample messages of the operator against what is expected of them.

Without `--url` the local analyzers and the policy judge, and no engine is asked: what engines would find,
lists and earlier contacts are not there.
Security: samples may be real attacks; they are examined in a worker process, as guard does, under a deadline.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.analysis.analyzer import Content
from mailwarden.analysis.collection import Collector
from mailwarden.analysis.workers import Patience, WorkerPool
from mailwarden.cli.address import add_address_options
from mailwarden.cli.command import Command
from mailwarden.cli.policy_choice import add_policy_options, chosen_policy
from mailwarden.cli.scan import addresses_of, make_parameters, submit
from mailwarden.errors import CommandError
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.policy.decide import decide
from mailwarden.policy.expectation import Expectation
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy
from mailwarden.settings.reader import Mistake, Mistakes, read

MAX_SAMPLES = 5_000
MAX_BYTES = 52_428_800
SECONDS = 30.0  # for one message
MEMORY = 1_024  # MiB of the worker


class Sample(Struct, frozen=True):
    name: str
    message: Path
    expectation: Expectation


class Result(Struct, frozen=True):
    """What came of a sample; without complaints it is as expected."""

    sample: str
    verdict: Verdict
    decision: Decision
    tags: tuple[str, ...]
    complaints: tuple[str, ...]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="messages (.eml), each with its .yml beside it")
    add_policy_options(parser)
    parser.add_argument("--yara", default="", metavar="FOLDER", help="folder with YARA rules of your own")
    parser.add_argument("--tenant", metavar="UUID", help="tenant to scan for, with --url")
    parser.add_argument("--token-file", type=Path, help="file with the token for --url (default: $MAILWARDEN_TOKEN)")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the output")
    add_address_options(parser)


def _run(options: argparse.Namespace) -> int:
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
    """Return the samples of the folder and those below it, or raise Mistakes with all that is wrong with them."""
    messages = sorted(folder.rglob("*.eml"))[: MAX_SAMPLES + 1]
    if not messages:
        raise CommandError(f"{folder} holds no messages: put *.eml there, each with a .yml of the same name.")
    if len(messages) > MAX_SAMPLES:
        raise CommandError(f"{folder} holds more than {MAX_SAMPLES:,} messages.")
    samples: list[Sample] = []
    mistakes: list[Mistake] = []
    for message in messages:
        wish = message.with_suffix(".yml")
        if not wish.is_file():
            mistakes.append(Mistake(str(wish), 1, "", f"is missing: it says what is expected of {message.name}"))
            continue
        try:
            samples.append(Sample(str(message.relative_to(folder)), message, read(wish, Expectation)))
        except Mistakes as found:
            mistakes.extend(found.mistakes)
    if mistakes:
        raise Mistakes(mistakes)
    return samples


async def _gather(options: argparse.Namespace, samples: Sequence[Sample], policy: Policy) -> list[Result]:
    """Collect the results, and show each when it comes."""
    results = []
    source = _scan(options, samples) if options.url else _judge(samples, policy, options.yara)
    async for result in source:
        results.append(result)
        if options.output == "text":
            print(_line(result), flush=True)
    return results


async def _judge(samples: Sequence[Sample], policy: Policy, yara: str) -> AsyncIterator[Result]:
    """Judge each sample by the local analyzers alone."""
    workers = WorkerPool(1, MEMORY, Patience(), yara)
    await workers.start()
    try:
        collector = Collector(workers, ())
        for sample in samples:
            raw, wish = _read(sample.message), sample.expectation
            given = wish.envelope
            sender = given.sender if given.sender is not None else next(iter(addresses_of(raw, b"from")), "")
            recipients = given.recipients or tuple(addresses_of(raw, b"to"))
            envelope = Envelope(sender, recipients, given.remote_address, given.helo)
            collected = await collector.collect(Content(raw), envelope, SECONDS)
            judgement = judge(collected.evidence, policy)
            assignment = Assignment(UUID(int=0), AssignedBy.REQUEST, wish.profile)
            ruling = decide(judgement, assignment, policy)
            tags = tuple(sorted({*judgement.tags, *ruling.tags}))
            yield _compared(sample, judgement.verdict, ruling.decision, tags)
    finally:
        await workers.stop()


async def _scan(options: argparse.Namespace, samples: Sequence[Sample]) -> AsyncIterator[Result]:
    """Have a running abby judge each sample."""
    for sample in samples:
        raw, given = _read(sample.message), sample.expectation.envelope
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


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(f"{path} is larger than a message may be.")
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None


def _line(result: Result) -> str:
    said = f"{result.verdict}/{result.decision}"
    if not result.complaints:
        return f"ok    {result.sample}  {said}"
    return f"FAIL  {result.sample}  {said}: {'; '.join(result.complaints)} (tags: {', '.join(result.tags) or '-'})"


COMMAND = Command(
    example="mailwarden policy test samples/ --set html.link-mismatch=80",
    arguments=_arguments,
    run=_run,
)
