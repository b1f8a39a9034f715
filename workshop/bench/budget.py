"""The CPU time of each step of a worker, compared with its budget.

The unit is the time that the standard library's `email` package takes to parse the same messages in the same process.
It is measured beside every message, so that a slow or busy machine changes both. Every round has new messages, and the
fastest round counts.
"""

import argparse
import io
import sys
import time
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage

from PIL import Image, ImageDraw

from mailwarden.pipeline.worker_steps import Job, run_steps
from workshop.bench.messages import make_message
from workshop.bench.variation import Variation

# Of each step, in units: about 1.7 times what it used when the budget was set, and at least 0.04 more.
BUDGETS = {
    "images": 7.31,
    "urls": 2.4,  # the first step that needs phrases searches for those of all steps
    "html": 0.47,
    "message": 0.36,
    "structure": 0.34,
    "similarity": 0.18,
    "attachments": 0.13,
    "fraud": 0.15,
    "lookalike": 0.1,
    "coverage": 0.09,
    "thread": 0.09,
    "newsletter": 0.08,
    "domains": 0.07,
    "sender": 0.07,
    "wording": 0.06,
    "commands": 0.05,
    "calendar": 0.04,
    "obfuscation": 0.06,
    "pdf": 0.05,
    "lures": 0.06,
    "office": 0.05,
    "offers": 0.05,
    "shortcuts": 0.04,
    "yara": 0.04,
}
ROUNDS = 9
WARM_UP = 3


def make_messages() -> list[bytes]:
    """Make a short and a long message, and one with a picture and a document."""
    return [make_message(1, 5_000), make_message(2, 50_000), make_rich_message()]


def make_rich_message() -> bytes:
    """Make a message with a page, a picture and a PDF."""
    message = EmailMessage()
    message["From"] = "Ann Example <ann@sender.example>"
    message["To"] = "bob@corp.example"
    message["Subject"] = "The plan of the new building"
    message["Message-ID"] = "<rich@sender.example>"
    # More text than beside a picture that carries the message: the budget is without text recognition.
    text = "The plan of the first floor is attached. Please look at the northern rooms and write to me until Friday."
    message.set_content(f"{text}\n")
    message.add_alternative(f"<html><body><p>{text} <b>Thank you.</b></p></body></html>", subtype="html")
    picture = Image.new("RGB", (640, 480), "white")
    pen = ImageDraw.Draw(picture)
    for number in range(40):
        pen.rectangle((number * 16, number * 7, number * 16 + 40, number * 7 + 90), outline=(number * 6, 80, 160))
    for kind, media in (("JPEG", ("image", "jpeg")), ("PDF", ("application", "pdf"))):
        written = io.BytesIO()
        picture.save(written, kind)
        message.add_attachment(written.getvalue(), *media, filename=f"plan.{kind.lower()}")
    return message.as_bytes(policy=policy.SMTP)


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Return the units that each step uses for all messages together."""
    variation = Variation(make_messages())
    count = len(make_messages())
    fastest: dict[str, float] = {}
    unit = float("inf")
    for turn in range(WARM_UP + rounds):
        messages = variation.take(count)
        used = dict(_time_steps(messages))
        if turn >= WARM_UP:
            unit = min(unit, used.pop(""))
            fastest = {step: min(fastest.get(step, seconds), seconds) for step, seconds in used.items()}
    return {step: seconds / unit for step, seconds in fastest.items()}


def _time_steps(messages: list[bytes]) -> Iterator[tuple[str, float]]:
    """Yield the seconds of each step, and of the standard library under the name ""."""
    used: dict[str, float] = {"": 0.0}
    for message in messages:
        began = time.process_time()
        for part in message_from_bytes(message, policy=policy.default).walk():
            part.get_payload(decode=True)
        before = time.process_time()
        used[""] += before - began
        for frame in run_steps(Job(message)):
            now = time.process_time()
            used[frame.report.analyzer] = used.get(frame.report.analyzer, 0.0) + now - before
            before = now
    yield from used.items()


def over_budget(used: dict[str, float]) -> list[str]:
    """Return the steps that use more than their budget, or that have none."""
    return [step for step, units in used.items() if units > BUDGETS.get(step, 0.0)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m workshop.bench.budget --rounds 30")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of all messages (default: %(default)s)")
    used = measure(parser.parse_args().rounds)
    over = over_budget(used)
    print("Units: the standard library parses the same messages in 1.")
    for step, units in sorted(used.items(), key=lambda pair: -pair[1]):
        print(f"{step:<14}{units:8.3f} of {BUDGETS.get(step, 0.0):6.3f}{'  over its budget' if step in over else ''}")
    print(f"{'all':<14}{sum(used.values()):8.3f}")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
