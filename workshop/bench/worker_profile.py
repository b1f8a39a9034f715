"""Where a worker spends its CPU time, function by function.

Runs the worker's steps in this process on messages that are all different, and notes the Python call stack each
millisecond of CPU time. `alone` is the time in a function itself and in the C code that it calls, `with callees`
includes the Python functions that it calls. Text recognition in pictures is counted beside: few messages need it, and
it costs more than all other steps together.
"""

import argparse
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

from mailwarden.analysis import picture_text
from mailwarden.analysis.picture_text import PictureText, recognize_texts
from mailwarden.analysis.view import View
from mailwarden.model.place import Place
from mailwarden.pipeline.worker_steps import Job, run_steps
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation

EVERY = 0.001
WARM_UP = 60


class Sampler:
    """Counts the functions on the call stack."""

    def __init__(self) -> None:
        self.samples = 0
        self.alone: Counter[str] = Counter()
        self.with_callees: Counter[str] = Counter()

    def note(self, _: int, frame: FrameType | None) -> None:
        names = []
        while frame is not None:
            names.append(_name(frame))
            frame = frame.f_back
        self.samples += 1
        self.alone[names[0]] += 1
        self.with_callees.update(set(names))


class Recognition:
    """Counts the messages whose pictures are read by text recognition, and the CPU time of that."""

    def __init__(self) -> None:
        self.messages = 0
        self.seconds = 0.0

    def recognize_texts(
        self, view: View, pictures: Iterable[tuple[bytes, str, Place]], language: str
    ) -> list[PictureText]:
        began = time.process_time()
        try:
            return list(recognize_texts(view, pictures, language))
        finally:
            self.messages += 1
            self.seconds += time.process_time() - began


def _name(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    for folder in ("site-packages/", "mailwarden/", "lib/"):
        path = path.rpartition(folder)[2]
    return f"{path} {frame.f_code.co_qualname}"


def sample(messages: Sequence[bytes]) -> tuple[Sampler, float]:
    """Return the samples and the microseconds of CPU a message."""
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.note)
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    began = time.process_time()
    try:
        examine_all(messages)
    finally:
        used = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
    return sampler, used / len(messages) * 1e6


def examine_all(messages: Sequence[bytes]) -> None:
    for message in messages:
        for _ in run_steps(Job(message)):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.worker_profile --size 50k"
    )
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--size", choices=["5k", "50k"], default="5k", help="which of them (default: %(default)s)")
    parser.add_argument("--count", type=int, default=500, help="messages (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=40, help="functions to print (default: %(default)s)")
    arguments = parser.parse_args()
    variation = Variation(read_messages(arguments.messages)[arguments.size])
    examine_all(variation.take(WARM_UP))
    recognition = Recognition()
    setattr(picture_text, recognize_texts.__name__, recognition.recognize_texts)
    sampler, used = sample(variation.take(arguments.count))
    print(f"{arguments.size}: {used:.0f} us of CPU a message, {sampler.samples} samples")
    spent = recognition.seconds / arguments.count * 1e6
    print(
        f"text recognition: {recognition.messages} of {arguments.count} messages, {spent:.0f} us a message;"
        f" {used - spent:.0f} us without it"
    )
    for title, counts in (("alone", sampler.alone), ("with callees", sampler.with_callees)):
        print(f"\nus a message, {title}")
        for name, count in counts.most_common(arguments.lines):
            print(f"{count / sampler.samples * used:7.0f}  {name}")


if __name__ == "__main__":
    main()
