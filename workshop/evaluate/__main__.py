"""`make evaluate`: scans labelled corpora through guard's own pipeline, and prints what is held and what is not."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import cast

import uvloop
from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import Policy, load_policy
from mailwarden.settings.reader import Mistakes
from workshop.bench.messages import read_messages
from workshop.evaluate.corpus import Corpus, Sample, Split
from workshop.evaluate.cost import Costs, cost_line, cost_table, own, processor_time, reported
from workshop.evaluate.delivery import Authentication
from workshop.evaluate.learning import ask_classifiers, is_learned, with_learned, with_learned_elsewhere
from workshop.evaluate.page import write_page
from workshop.evaluate.records import RecordFile, Run, Scanned, key_of, newest
from workshop.evaluate.refreshing import refresh
from workshop.evaluate.replay import REPLAYED_TENANTS, replay, replay_tables
from workshop.evaluate.scanning import GoOn, leave, scan_all
from workshop.evaluate.separation import separating, sums_of
from workshop.evaluate.shipped import left_out_tables, rival_table, shipped_line, shipped_tables
from workshop.evaluate.tables import (
    best_findings,
    cause_tables,
    elsewhere_table,
    finding_table,
    last_line,
    learned_table,
    left_out_table,
    result_table,
    robustness,
    source_table,
)
from workshop.evaluate.trial import Judged, try_all, without_findings
from workshop.rig.engines import Engines

UNPACKED, RESULTS = Path("run/corpus"), Path("run/evaluate")
TIMED = 1_000  # messages of the corpus that are timed in this process, one after the other
BENCH_ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.5", "mail.sender.example")


class Part(Struct, frozen=True):
    """One corpus of a run, and its messages that are measured."""

    corpus: Corpus
    samples: list[Sample]
    run: Run

    @property
    def key(self) -> str:
        return key_of(self.corpus.key, self.samples)


def main(words: Sequence[str] | None = None) -> int:
    arguments = _read_arguments(words)
    if arguments.blind:
        return _main_blind(arguments)
    began = time.monotonic()
    policy = _load_policy()
    parts = _open(arguments, arguments.unpacked)
    records = _stored(parts, arguments) if arguments.rejudge or arguments.refresh else _scan(parts, arguments)
    records = without_findings(records, arguments.without) if arguments.without else records
    judged = try_all(records, policy)
    if arguments.findings is not None:
        _print(finding_table(row for row in separating(judged) if row.name.startswith(arguments.findings)))
        return 0
    lines = _print(_headline(judged, records, policy, arguments))
    if arguments.wrong:
        lines += _print(_wrong_decisions(judged, arguments.wrong))
    if arguments.learning and is_learned(records):
        learned = try_all(with_learned(records), policy)
        lines += _print(_learned_sections(learned, try_all(with_learned_elsewhere(records), policy)))
    if arguments.details:
        lines += _print(_sections(judged, policy))
        write_page(arguments.results / "report.html", judged, [*lines, shipped_line(judged)])
        _say(f"{arguments.results / 'report.html'} shows every wrong decision")
    if arguments.costs:
        lines += _print(_costs(parts, records, arguments.bench or _bench_beside(arguments.corpus[0])))
    _say(f"{len(records):,} messages in {time.monotonic() - began:.0f} s; their evidence is in {arguments.results}")
    _print([shipped_line(judged)])
    return 0


def _main_blind(arguments: argparse.Namespace) -> int:
    """Print aggregates only, and store nothing: no message, no subject, no path, no finding."""
    problem = ""
    policy = _load_policy()
    with tempfile.TemporaryDirectory() as folder:
        try:
            parts = _open(arguments, Path(folder))
            _say(f"{sum(len(part.samples) for part in parts):,} messages to scan; progress is not shown")
            with _silence():
                records = _scan(parts, arguments)
            judged = try_all(records, policy)
            _print(_headline(judged, records, policy, arguments))
            _print([shipped_line(judged)])
        except Exception as error:  # its text may have the path of a message
            problem = type(error).__name__
    if problem:
        raise SystemExit(f"The blind run failed ({problem}). Run it without --blind on a corpus that may be shown.")
    return 0


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error, also of programs that are started: a log line may have the name of a message."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("w", encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 2)
        try:
            with contextlib.redirect_stderr(nothing):
                yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _load_policy() -> Policy:
    try:
        return load_policy()
    except Mistakes as mistakes:  # work on the rules needs no new scan
        raise SystemExit(str(mistakes)) from None


def _open(arguments: argparse.Namespace, unpacked: Path) -> list[Part]:
    """Unpack every corpus, and have the authentication of its messages replayed."""
    parts = []
    for folder in arguments.corpus:
        corpus = Corpus(folder, unpacked)
        samples = wanted = corpus.samples(cast("Split", arguments.split), arguments.sample)
        if not arguments.rejudge or arguments.costs:
            corpus.unpack()
            samples = corpus.existing(wanted)
        if len(samples) < len(wanted):
            _say(f"{len(wanted) - len(samples)} of {len(wanted)} messages in the manifest of {corpus.name} are missing")
        if not arguments.without_authentication and not arguments.rejudge:
            corpus.prepare(samples, Authentication())
        split = arguments.split if corpus.is_split else "all"
        run = Run(corpus.name, split, arguments.sample, not arguments.without_authentication)
        parts.append(Part(corpus, samples, run))
    if not any(part.samples for part in parts):
        raise SystemExit("There is no message to measure: check MANIFEST.csv and messages.tar.xz.")
    return parts


def _print(lines: Iterable[str]) -> list[str]:
    """Print each line as it comes, and return all lines."""
    printed = []
    for line in lines:
        print(line, flush=True)
        printed.append(line)
    return printed


def _stored(parts: Sequence[Part], arguments: argparse.Namespace) -> list[Scanned]:
    """Return the results of the last scan of each corpus; `--refresh` runs our analyzers again and stores them."""
    found = []
    for part in parts:
        file = newest(arguments.results, part.run)
        records = file.read()
        if arguments.refresh:
            records = list(refresh({part.corpus.name: part.corpus}, records))
            RecordFile(arguments.results / part.run.named(part.key)).write(records)
        elif part.key not in file.path.stem:
            _say(f"{file.path} was made by other analyzers than those of now: only the rules are of now")
        found += records
    return found


def _scan(parts: Sequence[Part], arguments: argparse.Namespace) -> list[Scanned]:
    """Scan each corpus with a name server of its own: the senders of one corpus have no records for another."""
    found = []
    for number, part in enumerate(parts):
        learns = arguments.learning and number == 0
        records = _scan_part(part, _train(part.corpus, arguments) if learns else leave)
        if not arguments.blind:
            RecordFile(arguments.results / part.run.named(part.key)).write(records)
        found += records
    return found


def _scan_part(part: Part, go_on: GoOn) -> list[Scanned]:
    authentication = part.corpus.authentication
    dns_records = authentication.records() if authentication else []
    posts = part.corpus.posts(part.samples, time.time())
    records = scan_all(posts, len(part.samples), go_on, dns_records)
    if authentication and authentication.unsigned:
        _say(f"{authentication.unsigned} messages cannot be signed, so they are not authenticated by DKIM")
    return records


def _train(corpus: Corpus, arguments: argparse.Namespace) -> GoOn:
    """Return what trains Rspamd with a corpus, and asks it about the messages of this corpus."""

    def learn(engines: Engines, records: list[Scanned]) -> list[Scanned]:
        lessons = corpus.existing(corpus.samples("dev"))
        return uvloop.run(ask_classifiers(engines, corpus, arguments.split, lessons, records))

    return learn


def _headline(
    judged: list[Judged], records: list[Scanned], policy: Policy, arguments: argparse.Namespace
) -> Iterator[str]:
    again = (arguments.rejudge or arguments.refresh) and not arguments.details  # a short output, for development
    yield from shipped_tables(judged, blind=arguments.blind)
    if arguments.replay:
        yield from replay_tables(judged, replay(records, policy))
        yield from replay_tables(judged, replay(records, policy, REPLAYED_TENANTS), REPLAYED_TENANTS)
    yield from left_out_tables(judged, rows=not again, named=not arguments.blind)
    yield from rival_table(judged)


def _wrong_decisions(judged: Iterable[Judged], pattern: str) -> Iterator[str]:
    """Yield the wrong decisions of the groups that match: ham that is not clean, attacks that are not held."""
    yield f"\nWrong decisions in {pattern}"
    for one in sorted(judged, key=lambda one: (one.sample.subset, -one.score)):
        sample = one.sample
        if not (pattern == "all" or fnmatch(sample.subset, pattern) or fnmatch(sample.language, pattern)):
            continue
        doubtful = one.held or one.judgement.verdict is Verdict.SUSPICIOUS
        if (sample.is_ham and doubtful) or (sample.is_attack and not one.held):
            yield f"{sample.path}  {one.judgement.verdict} {one.score:g}  {sums_of(one)}"


def _sections(judged: list[Judged], policy: Policy) -> Iterator[str]:
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("Detection at fixed false positive rates", result_table(judged)),
        ("Every source", source_table(judged)),
        ("Messages without a verdict", robustness(judged)),
        ("With one analyzer left out, at FPR 0.5 %", left_out_table(judged, policy)),
        ("The findings that separate best", finding_table(best_findings(judged))),
        ("Wrong decisions of the shipped policy", cause_tables(judged)),
    )
    for title, lines in sections:
        yield f"\n{title}"
        yield from lines
    yield last_line(judged)


def _learned_sections(learned: list[Judged], elsewhere: list[Judged]) -> Iterator[str]:
    yield "\nWith what a tenant taught (the dev split)"
    yield from learned_table(learned)
    yield "\nHam that is held back where its whole source was not taught"
    yield from elsewhere_table(learned, elsewhere)


def _costs(parts: Sequence[Part], records: Sequence[Scanned], bench: Path | None) -> Iterator[str]:
    yield "\nCost of our analyzers (processor time in one process; wall time in the workers, several at once)"
    large = read_messages(bench)["50k"]
    yield cost_line("the first message, which has data loaded", [own(processor_time(large[0], BENCH_ENVELOPE))])
    yield from cost_table("50 KB messages", [processor_time(raw, BENCH_ENVELOPE) for raw in large])
    step = max(1, len(records) // TIMED)
    now = time.time()
    corpora = {part.corpus.name: part.corpus for part in parts}
    timed = [_cost_of(corpora[record.sample.corpus], record, now) for record in records[::step]]
    yield from cost_table("corpus", timed)
    yield cost_line("corpus, wall time: own analyzers", reported(records))


def _bench_beside(corpus: Path) -> Path | None:
    folder = corpus.parent / "bench"
    return folder if folder.is_dir() else None


def _cost_of(corpus: Corpus, record: Scanned, now: float) -> Costs:
    posted = corpus.post(record.sample, now)
    return processor_time(posted.raw, posted.envelope)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.evaluate",
        description=__doc__,
        epilog="Example: python -m workshop.evaluate --corpus FOLDER --corpus OTHER --rejudge --wrong ham-template",
    )
    add = parser.add_argument
    add("--corpus", type=Path, action="append", required=True, help="folder with MANIFEST.csv and messages; repeatable")
    add("--split", choices=("dev", "test"), default="dev", help="of a corpus that has splits (%(default)s)")
    add("--sample", type=int, help="so many messages of each corpus, for a quick look")
    add("--without-authentication", action="store_true", help="do not replay SPF, DKIM and DMARC")
    add("--blind", action="store_true", help="print aggregates only and store nothing, for a corpus that stays hidden")
    add("--replay", action="store_true", help="also judge in the order of time, with sender history")
    add("--rejudge", action="store_true", help="scan nothing: judge the evidence of the last scan by the rules of now")
    add("--refresh", action="store_true", help="as --rejudge, and run our analyzers again; engines' answers are kept")
    add("--without", metavar="PREFIX", action="append", help="judge without findings whose names begin so; repeatable")
    add("--wrong", metavar="GROUP", help="list the wrong decisions of a group or language (a pattern, or `all`)")
    add("--details", action="store_true", help="also thresholds, left-out analyzers, best findings, and report.html")
    add("--findings", metavar="PREFIX", nargs="?", const="", help="print only the frequency of each finding, and end")
    add("--learning", action="store_true", help="also train Rspamd with the first corpus, as a tenant does")
    add("--costs", action="store_true", help="also the processor time of our analyzers")
    add("--bench", type=Path, help="folder with 5k_*.eml and 50k_*.eml to time (`bench` beside the corpus, or made)")
    add("--unpacked", type=Path, default=UNPACKED, help="where messages are unpacked (%(default)s)")
    add("--results", type=Path, default=RESULTS, help="where evidence and page go (%(default)s)")
    arguments = parser.parse_args(words)
    shown = ("rejudge", "refresh", "without", "wrong", "details", "findings", "learning", "costs")
    if arguments.blind and any(getattr(arguments, name) not in (None, False) for name in shown):
        parser.error("--blind prints aggregates only: use it without --rejudge, --refresh, --wrong or --details")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
