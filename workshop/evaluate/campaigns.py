"""How well similar messages of labelled corpora are grouped into campaigns.

Every message of the corpora arrives once, then a near duplicate of each (near_duplicates.py). A near duplicate
must join the campaign of its original; test mails of software projects (fixtures) often have no text. Messages of
different clusters, sources or threads must not be in one campaign: `--show` prints those joins by their files and keys,
never by their text. With `--reported` the near duplicate is what guard finds in a user's report, in the formats of a
message/rfc822 part, of Microsoft and of Google in turn.
"""

import argparse
import base64
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from mailwarden.analysis.similarity import find_similarity
from mailwarden.analysis.view import View
from mailwarden.history.campaigns import Match, Reference, keys_to_store, match
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.record import CampaignIds
from mailwarden.model.similarity import Similarity
from mailwarden.user_reports.cases.service import content_keys
from mailwarden.user_reports.mailbox.report_mail import read_report
from workshop.evaluate.campaign_flood import measure_flood
from workshop.evaluate.corpus import FIXTURE, MALFORMED, Corpus, Sample, Split, Submission
from workshop.evaluate.near_duplicates import make_near_duplicate
from workshop.evaluate.progress import Meter

_PREFIX = re.compile(r"\b(re|fwd?|aw|wg)(\[\d+\])?:|\[[^\]]*\]|\(was:.*")
UNPACKED = Path("run/corpus")
GOAL_JOINED, GOAL_UNRELATED = 95.0, 0.5  # percent
PROCESSES = 2
BOUNDARY = "of-the-report-of-a-user"


class Keyed(Struct, frozen=True):
    """A message and its near duplicate, by their keys."""

    sample: Sample
    thread: str  # the subject without prefixes
    similarity: Similarity
    varied: Similarity | None  # None: the message could not be varied


class Groups:
    """Assigns campaigns as history does, in memory."""

    def __init__(self) -> None:
        self._stored: dict[int, Reference] = {}

    def find(self, similarity: Similarity) -> Match | None:
        return match(similarity, self._stored)

    def add(self, similarity: Similarity) -> tuple[CampaignIds | None, str]:
        """Return the campaign of a message, and what it has in common with it; "" if it is the first."""
        if not similarity.keys:
            return None, ""
        found = self.find(similarity)
        campaign = found.reference.campaign if found else CampaignIds(uuid4(), uuid4())
        for key in keys_to_store(similarity, found):
            self._stored.setdefault(key, Reference(campaign, similarity.sketch))
        return campaign, found.kind if found else ""


def main() -> int:
    arguments = _read_arguments()
    if arguments.flood:
        return measure_flood(arguments.flood)
    keyed = _read_corpora(arguments.corpus, arguments.sample, reported=arguments.reported)
    groups = Groups()
    members: dict[CampaignIds, list[tuple[Keyed, str]]] = defaultdict(list)
    campaigns: list[CampaignIds | None] = []
    for each in keyed:
        campaign, kind = groups.add(each.similarity)
        campaigns.append(campaign)
        if campaign is not None:
            members[campaign].append((each, kind))
    joined = _print_near_duplicates(keyed, campaigns, groups)
    unrelated = _print_unrelated(len(keyed), list(members.values()), show=arguments.show)
    return int(joined < GOAL_JOINED or unrelated >= GOAL_UNRELATED)


def _print_near_duplicates(keyed: Sequence[Keyed], campaigns: Sequence[CampaignIds | None], groups: Groups) -> float:
    """Print how many near duplicates join the campaign of their original; return the percentage."""
    total, joined, kinds = Counter[str](), Counter[str](), Counter[str]()
    for each, campaign in zip(keyed, campaigns, strict=True):
        if each.varied is None:
            continue
        found = groups.find(each.varied)
        ok = found is not None and found.reference.campaign == campaign
        content = "with a sketch" if each.similarity.sketch else "with a short text"
        mail = ("all but fixtures",) if each.sample.kind != FIXTURE else ()
        for name in (each.sample.kind, content, *mail, "all"):
            total[name] += 1
            joined[name] += ok
        kinds[found.kind if found and ok else "-"] += 1
    print("Near duplicates that join the campaign of their original")
    for name in sorted(total, key=lambda each: (each.startswith("all"), each)):
        print(f"  {name:<20}{joined[name]:>7,} of {total[name]:>7,}  {100 * joined[name] / total[name]:6.2f} %")
    print(f"  by key: {', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())}")
    print(f"  not varied: {sum(each.varied is None for each in keyed):,}")
    return 100 * joined["all but fixtures"] / max(1, total["all but fixtures"])


def _print_unrelated(messages: int, campaigns: Sequence[list[tuple[Keyed, str]]], *, show: bool) -> float:
    """Print the messages and pairs that are joined though unrelated; return the percentage of pairs."""
    wrong: Counter[str] = Counter()
    pairs = 0
    for members in campaigns:
        first = members[0][0]
        for each, kind in members[1:]:
            if _are_unrelated(first, each):
                wrong[kind] += 1
                if show:
                    print(f"  {kind:<8} {first.sample.path} {each.sample.path}")
        pairs += sum(_are_unrelated(a, b) for (a, _), (b, _) in combinations(members, 2))
    all_pairs = messages * (messages - 1) // 2
    share = 100 * pairs / max(1, all_pairs)
    print("Unrelated pairs of messages, by the manifest, that are in one campaign")
    print(f"  {pairs:,} of {all_pairs:,}  {share:.5f} %")
    print("Messages that join a campaign whose first message is unrelated by the manifest")
    print(f"  {wrong.total():,} of {messages:,}  {100 * wrong.total() / max(1, messages):.2f} %")
    print(f"  by key: {', '.join(f'{kind} {count:,}' for kind, count in wrong.most_common())}")
    sizes = Counter(min(len(members), 10) for members in campaigns)
    print(f"  campaigns by size (10: or more): {dict(sorted(sizes.items()))}")
    return share


def _are_unrelated(one: Keyed, other: Keyed) -> bool:
    """Return whether two messages have nothing to do with each other, as far as manifest and subject say."""
    if one.thread and one.thread == other.thread:
        return False
    if one.sample.cluster and other.sample.cluster:
        return one.sample.cluster != other.sample.cluster
    return (one.sample.corpus, one.sample.source) != (other.sample.corpus, other.sample.source)


def _read_corpora(folders: Sequence[Path], sample: int, *, reported: bool = False) -> list[Keyed]:
    posts: list[Submission] = []
    for folder in folders:
        corpus = Corpus(folder, UNPACKED)
        corpus.unpack()
        splits: tuple[Split, ...] = ("dev", "test") if corpus.is_split else ("dev",)
        samples = [each for split in splits for each in corpus.samples(split) if each.kind != MALFORMED]
        step = max(1, len(samples) * len(folders) // sample) if sample else 1
        posts += corpus.posts(samples[::step], time.time())
    meter = Meter(len(posts))
    with ProcessPoolExecutor(PROCESSES) as pool:
        found = []
        for each in pool.map(partial(_keys_of, reported=reported), enumerate(posts), chunksize=20):
            found.append(each)
            meter.step()
    return found


def _keys_of(numbered: tuple[int, Submission], *, reported: bool = False) -> Keyed:
    number, posted = numbered
    varied = make_near_duplicate(posted.raw, number)
    if varied is not None and reported:
        varied = _reported(varied, number)
    other = Envelope("bounce@sender.example", ("user@company.example",), f"198.51.{number % 256}.7")
    similarity = None if varied is None else similarity_of(varied, other)  # an empty message joins nothing
    return Keyed(
        posted.sample,
        _thread(posted.raw),
        similarity_of(posted.raw, posted.envelope),
        content_keys(similarity) if similarity is not None and reported else similarity,
    )


def _reported(raw: bytes, number: int) -> bytes:
    """Return the message as guard reads it from a report; empty if it finds none."""
    subject = ("Fwd", "3|6dc6|192.0.2.7|x@sender.example|(y)", "report")[number % 3]
    kind = f"multipart/mixed; boundary={BOUNDARY}"
    head = f"From: user@company.example\r\nSubject: {subject}\r\nContent-Type: {kind}\r\n"
    if subject == "report":
        fields = b'Content-Type: application/octet-stream; name="m.eml"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
        part = fields + base64.encodebytes(raw)
    else:
        part = b"Content-Type: message/rfc822\r\n\r\n" + raw
    edge = f"--{BOUNDARY}".encode()
    report = read_report(head.encode() + b"\r\n" + edge + b"\r\n" + part + b"\r\n" + edge + b"--\r\n")
    return (report.originals[0].content or b"") if report.originals else b""


def _thread(raw: bytes) -> str:
    """Return the subject without prefixes, numbers and case."""
    subject = parse_message(raw).header("subject")[:300].lower()
    return "".join(filter(str.isalpha, _PREFIX.sub("", subject)))


def similarity_of(raw: bytes, envelope: Envelope) -> Similarity:
    return find_similarity(View(parse_message(raw), envelope))


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.evaluate.campaigns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m workshop.evaluate.campaigns --corpus FOLDER --sample 2000 --show\n"
        "         python -m workshop.evaluate.campaigns --flood 100000",
    )
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="corpus folder; may be repeated")
    parser.add_argument("--sample", type=int, default=0, help="about so many messages (default: all)")
    parser.add_argument("--reported", action="store_true", help="read each near duplicate from a user's report")
    parser.add_argument("--show", action="store_true", help="print each message that joins an unrelated one")
    parser.add_argument(
        "--flood", type=int, default=0, help="measure instead a flood of so many messages, in a PostgreSQL of its own"
    )
    arguments = parser.parse_args()
    if not arguments.corpus and not arguments.flood:
        parser.error("name a corpus with --corpus, or a number of messages with --flood")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
