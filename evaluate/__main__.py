"""`make evaluate`: scans a labelled corpus through guard's own pipeline, and prints the detection rates."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import uvloop

from bench.messages import read_messages
from evaluate.corpus import Corpus, Sample
from evaluate.cost import Costs, cost_line, cost_table, own, processor_time, reported
from evaluate.learning import ask_learners, is_learned, with_learned, with_learned_elsewhere
from evaluate.page import write_page
from evaluate.records import RecordFile, Scanned, key_of, named, newest
from evaluate.refreshing import refresh
from evaluate.scanning import leave, scan_all
from evaluate.separation import separating
from evaluate.tables import (
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
from evaluate.trial import Judged, try_all
from mailwarden.model.envelope import Envelope
from mailwarden.policy.rules import Policy, load_policy
from mailwarden.settings.reader import Mistakes
from rig.engines import Engines

UNPACKED, RESULTS = Path("run/corpus"), Path("run/evaluate")
TIMED = 1_000  # messages of the corpus that are timed in this process, one after the other
BENCH_ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.5", "mail.sender.example")


def main(words: Sequence[str] | None = None) -> int:
    arguments = _read_arguments(words)
    began = time.monotonic()
    corpus = Corpus(arguments.corpus, arguments.unpacked)
    try:
        policy = load_policy()
    except Mistakes as mistakes:  # work on the rules needs no new scan
        raise SystemExit(str(mistakes)) from None
    file, records = _stored(corpus, arguments) if arguments.rejudge or arguments.refresh else _scan(corpus, arguments)
    judged = try_all(records, policy)
    if arguments.findings is not None:
        _print(finding_table(row for row in separating(judged) if row.name.startswith(arguments.findings)))
        return 0
    learned = try_all(with_learned(records), policy) if is_learned(records) else None
    lines = _print(_sections(judged, policy))
    if learned is not None:
        lines += _print(_learned_sections(learned, try_all(with_learned_elsewhere(records), policy)))
    if not arguments.rejudge:
        lines += _print(_costs(corpus, records, arguments.bench or _bench_beside(arguments.corpus)))
    page = arguments.results / "report.html"
    write_page(page, judged, [*lines, last_line(judged, learned)])
    took = time.monotonic() - began
    _say(f"{len(records):,} messages in {took:.0f} s; {page} shows them; their evidence is in {file.path}")
    _print([last_line(judged, learned)])
    return 0


def _print(lines: Iterable[str]) -> list[str]:
    """Print each line as it comes, and return all lines."""
    printed = []
    for line in lines:
        print(line, flush=True)
        printed.append(line)
    return printed


def _stored(corpus: Corpus, arguments: argparse.Namespace) -> tuple[RecordFile, list[Scanned]]:
    """Return the results of the last scan of the split; `--refresh` runs the local analyzers again."""
    file = newest(arguments.results, arguments.split, arguments.sample)
    records = file.read()
    if arguments.refresh:
        corpus.unpack()
        return file, list(refresh(corpus, records))
    if key_of(corpus.key, (record.sample for record in records)) not in file.path.stem:
        _say(f"{file.path} was made by other analyzers than those of now: only the rules are of now")
    return file, records


def _scan(corpus: Corpus, arguments: argparse.Namespace) -> tuple[RecordFile, list[Scanned]]:
    samples: list[Sample] = corpus.samples(arguments.split, arguments.sample)
    key = key_of(corpus.key, samples)
    corpus.unpack()
    lessons = corpus.samples("dev")

    def learn(engines: Engines, records: list[Scanned]) -> list[Scanned]:
        return uvloop.run(ask_learners(engines, corpus, arguments.split, lessons, records))

    records = scan_all(corpus.posts(samples, time.time()), len(samples), learn if arguments.sample is None else leave)
    file = RecordFile(arguments.results / named(arguments.split, arguments.sample, key))
    file.write(records)
    return file, records


def _sections(judged: list[Judged], policy: Policy) -> Iterator[str]:
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("Detection and false positives", result_table(judged)),
        ("Every source", source_table(judged)),
        ("Messages without a verdict", robustness(judged)),
        ("With one analyzer left out, at FPR 0.5 %", left_out_table(judged, policy)),
        ("The findings that separate best", finding_table(best_findings(judged))),
        ("Wrong decisions of the shipped policy", cause_tables(judged)),
    )
    for title, lines in sections:
        yield f"\n{title}"
        yield from lines


def _learned_sections(learned: list[Judged], elsewhere: list[Judged]) -> Iterator[str]:
    yield "\nWith what a tenant taught (the dev split)"
    yield from learned_table(learned)
    yield "\nHam that is held back where its whole source was not taught"
    yield from elsewhere_table(learned, elsewhere)


def _costs(corpus: Corpus, records: Sequence[Scanned], bench: Path | None) -> Iterator[str]:
    yield "\nCost of our analyzers (processor time in one process; wall time in the workers, several at once)"
    large = read_messages(bench)["50k"]
    yield cost_line("the first message, which has data loaded", [own(processor_time(large[0], BENCH_ENVELOPE))])
    yield from cost_table("50 KB messages", [processor_time(raw, BENCH_ENVELOPE) for raw in large])
    step = max(1, len(records) // TIMED)
    now = time.time()
    yield from cost_table("corpus", [_cost_of(corpus, record, now) for record in records[::step]])
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
        prog="python -m evaluate",
        description=__doc__,
        epilog="Example: python -m evaluate --corpus FOLDER --split dev --sample 500",
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder with MANIFEST.csv and messages.tar.xz")
    parser.add_argument(
        "--split", choices=("dev", "test"), default="test", help="dev is for building, test for figures (%(default)s)"
    )
    parser.add_argument("--sample", type=int, help="so many messages of the split, for a quick look")
    parser.add_argument(
        "--rejudge", action="store_true", help="scan nothing: judge the evidence of the last scan by the rules of now"
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="as --rejudge, but run the current local analyzers again; the engines' findings stay",
    )
    parser.add_argument(
        "--findings", metavar="PREFIX", nargs="?", const="", help="print only the frequency of each finding, and end"
    )
    parser.add_argument(
        "--bench", type=Path, help="folder with 5k_*.eml and 50k_*.eml to time (`bench` beside the corpus, or made)"
    )
    parser.add_argument("--unpacked", type=Path, default=UNPACKED, help="where messages are unpacked (%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where evidence and page go (%(default)s)")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
