"""Good mail of several collections through guard's own pipeline; prints held messages and rules.

Run it on the code before a change with `--out`, and on the code after it with `--before`: it prints both and the
difference in percentage points, and every message that is newly held, by its rules, never by its text.
"""

import argparse
import csv
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.policy.rules import load_policy
from workshop.evaluate.corpus import Corpus, Sample, Submission
from workshop.evaluate.scanning import scan_all
from workshop.evaluate.trial import Judged, try_all

UNPACKED = Path("run/ham")
GOOD_MAIL = Path("tests/good_mail")
RECIPIENT = "bob@company.example"
# Labelled ham by their collection, but not ham by their content.
MISLABELLED = {
    "fixture-329d44deb384": "its subject says [SPAM], its text is a lottery",
    "fixture-738611b46e28": "a test of address spoofing, by its subject",
    "fixture-8618a74b81c9": "an advance-fee loan, SCL 9 in its header",
    "fixture-bea2027a6fb3": "X-Spam-Flag: YES in its header",
}


class Result(Struct, frozen=True):
    """The result of one good message."""

    collection: str
    path: str
    verdict: str
    decision: str
    rules: tuple[str, ...]
    limits: int

    @property
    def group(self) -> str:
        """The collection; test messages of parsers are a separate group, since many are broken on purpose."""
        return f"{self.collection}-fixture" if "fixture" in self.path else self.collection


def main() -> int:
    arguments = _read_arguments()
    if arguments.again:
        results = msgspec.json.decode(arguments.out.read_bytes(), type=list[Result])
    else:
        results = _scan(arguments)
    before = msgspec.json.decode(arguments.before.read_bytes(), type=list[Result]) if arguments.before else []
    for line in _table(results, before):
        print(line)
    return 0


def _scan(arguments: argparse.Namespace) -> list[Result]:
    posts = [post for folder in arguments.corpus for post in _collection(folder)]
    posts += _good_mail(GOOD_MAIL)
    if arguments.sample:
        posts = posts[:: max(1, len(posts) // arguments.sample)]
    results = [_result(judged) for judged in try_all(scan_all(iter(posts), len(posts)), load_policy())]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(msgspec.json.encode(results))
    return results


def _table(results: list[Result], before: list[Result]) -> Iterator[str]:
    columns = (
        ("messages", 9),
        ("held", 7),
        ("%", 7),
        ("suspicious", 12),
        ("undecided", 11),
        ("limit", 7),
        ("before", 13),
    )
    yield f"{'collection':<24}" + "".join(f"{title:>{width}}" for title, width in columns)
    for name in [*dict.fromkeys(result.group for result in results), "all"]:
        now = [result for result in results if name in ("all", result.group)]
        then = [result for result in before if name in ("all", result.group)]
        held = sum(map(_held, now))
        was = f"{sum(map(_held, then))} ({_percent(then):.2f} %)" if then else "-"
        counts = Counter(result.verdict for result in now)
        limits = sum(bool(result.limits) for result in now)
        yield (
            f"{name:<24}{len(now):>9,}{held:>7}{_percent(now):>7.2f}{counts[Verdict.SUSPICIOUS]:>12}"
            f"{counts[Verdict.UNKNOWN]:>11}{limits:>7}{was:>13}"
        )
    if before:
        known = {result.path for result in before if _held(result)}
        for result in results:
            if _held(result) and result.path not in known:
                yield f"newly held: {result.path}: {result.verdict} by {', '.join(result.rules)}"
        yield _change("ham held, labels as they come", results, before)
        good = [[each for each in group if Path(each.path).stem not in MISLABELLED] for group in (results, before)]
        yield _change(f"ham held without {len(results) - len(good[0])} messages that are not ham", *good)
        yield _change(
            "ham held without fixtures", *([r for r in each if r.group == r.collection] for each in (results, before))
        )


def _change(title: str, results: list[Result], before: list[Result]) -> str:
    change = _percent(results) - _percent(before)
    return f"{title}: before {_percent(before):.2f} % after {_percent(results):.2f} % change {change:+.2f} points"


def _held(result: Result) -> bool:
    return result.decision not in (Decision.DELIVER, Decision.UNDECIDED)


def _percent(results: list[Result]) -> float:
    return 100 * sum(map(_held, results)) / max(1, len(results))


def _result(judged: Judged) -> Result:
    rules = tuple(reason.rule for reason in judged.judgement.reasons if reason.weight > 0)
    limits = sum(rule == "structure.limit" for rule in rules)
    sample = judged.sample
    return Result(sample.subset, sample.path, judged.judgement.verdict, judged.decision, rules[:6], limits)


def _collection(folder: Path) -> Iterator[Submission]:
    """Yield the ham of a corpus: without its traces if it has a normaliser, else as delivered."""
    if (folder / "normalize.py").is_file():
        corpus = Corpus(folder, UNPACKED)
        corpus.unpack()
        samples = [each for split in ("dev", "test") for each in corpus.samples(split) if each.label == "ham"]
        now = time.time()
        for sample in samples:
            posted = corpus.post(sample, now)
            yield Submission(Sample(sample.path, "ham", folder.name, sample.source), posted.raw, posted.envelope)
        return
    with (folder / "MANIFEST.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file) if row["label"] == "ham"}
    with tarfile.open(folder / "messages.tar.xz") as archive:
        for member in archive:
            row = rows.get(member.name.removeprefix("./"))
            content = archive.extractfile(member) if row and member.isfile() else None
            if row and content:
                sender = row["mail_from"].encode("ascii", "ignore").decode()
                envelope = Envelope(sender, (RECIPIENT,), "203.0.113.77", "mail.sender.example")
                yield Submission(Sample(row["path"], "ham", folder.name, row["source"]), content.read(), envelope)


def _good_mail(folder: Path) -> Iterator[Submission]:
    for path in sorted(folder.glob("*.eml")):
        envelope = Envelope("news@sender.example", (RECIPIENT,), "203.0.113.77", "mail.sender.example")
        yield Submission(Sample(path.name, "ham", "good_mail", ""), path.read_bytes(), envelope)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.evaluate.ham",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m workshop.evaluate.ham --corpus FOLDER --corpus OTHER --before run/ham/before.json",
    )
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="corpus folder; may be repeated")
    parser.add_argument("--sample", type=int, default=0, help="so many messages, for a quick look")
    parser.add_argument("--out", type=Path, default=UNPACKED / "results.json", help="where results go (%(default)s)")
    parser.add_argument("--again", action="store_true", help="scan nothing: print the results in --out again")
    parser.add_argument("--before", type=Path, help="results of the code before, to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
