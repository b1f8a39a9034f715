"""`make story`: records a message, a list change and a release in a running product, and writes the page about them.

Example: python -m workshop.story
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mailwarden.model.envelope import Envelope
from mailwarden.pipeline.worker_steps import Job, run_steps
from tests.acceptance.client import Client
from tests.acceptance.console_client import Person
from tests.acceptance.list_client import ListClient
from workshop.bench.compare.ways import NextHop
from workshop.bench.lists import make_key
from workshop.rig.engines import Engines, start_engines
from workshop.rig.ports import free_port
from workshop.rig.product import Product
from workshop.rig.samples import malware_message, plain_message
from workshop.rig.smtp_sender import send_as_postfix
from workshop.story.page import Step, steps_of, write_story
from workshop.story.runs import PATIENCE, record, recorded_here, recorded_product

PAGE = Path("docs/how-a-scan-works.md")
NAME = "story"
WRITER = ("journal/", "history/writer.py", "history/campaigns.py", "senders/")
SENDER, RECIPIENT = "alice@pass.example", "bob@company.example"
_UID = re.compile(r'name="uid" value="([0-9a-f-]{36})"')
_HEAD = """<!-- Made from the code by `make story`. -->

# How a scan works

For developers. Each line is a function that one part of the product called in another while a message, a list change
and a release went through it, in the order of the first call, with the beginning of its docstring. Helpers within a
file, and the ground that every part uses, are left out. [Architecture](architecture.md) has the parts.
"""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.story", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(words)
    with start_engines() as engines, tempfile.TemporaryDirectory() as folder:
        stories = tell(engines, Path(folder))
    PAGE.write_text(write_page(stories), "utf-8")
    for title, steps in stories.items():
        print(f"{title}: {len(steps)} functions in {len({step.file for step in steps})} files")
    return 0


def write_page(stories: Mapping[str, Sequence[Step]]) -> str:
    sections = (f"\n## {title}\n```\n{write_story(steps)}\n```\n" for title, steps in stories.items())
    return _HEAD + "".join(sections)


def tell(engines: Engines, folder: Path) -> dict[str, list[Step]]:
    """Return the steps of each story by its title."""
    with NextHop() as next_hop:
        port = free_port()
        smtp = {"listen": {"port": port}, "nextHop": f"127.0.0.1:{next_hop.port}"}
        with recorded_product(folder, engines, NAME, guards=({"scanSources": {"smtp": smtp}},)) as product:
            return dict(stories_of(engines, product, port))


def stories_of(engines: Engines, product: Product, port: int) -> Iterator[tuple[str, list[Step]]]:
    calls = record(product, lambda: submit(product))
    ggrid = next(call.scan for call in calls if call.name == "scan/shared_answer.py:settle")
    yield "A message over HTTPS", steps_of(calls, "abby/submit.py:Scanning.submit_email", later=WRITER, ggrid=ggrid)
    job = Job(plain_message(), (), Envelope(SENDER, (RECIPIENT,)))
    worker = recorded_here(lambda: [*run_steps(job)])
    yield "The same message in a worker", steps_of(worker, "pipeline/worker_steps.py:run_steps", later=("",))
    key = make_key(product, engines.postgresql.url(NAME))
    lists = ListClient(Client(product.url, product.ca, None), key)
    calls = record(product, lambda: lists.add("sender-block", "eve@sender.example"))
    yield "A list change", steps_of(calls, "lists/api.py:ListApi.add_entries")
    deliver(port, malware_message())
    person = Person(Client(product.url, product.ca, None))
    person.set_up(product.setup_link, "ada")
    found = _UID.search(person.get("/console/quarantine").body.decode())
    assert found is not None
    form = {"action": "release", "uid": found[1], "confirmed": "1"}
    token = person.token()
    calls = record(product, lambda: person.post("/console/quarantine/chosen/do", token, **form))
    yield (
        "A release in the console",
        steps_of(calls, "console/screens/quarantine.py:QuarantineScreen.do", later=("quarantine/release",)),
    )


def submit(product: Product) -> None:
    """Scan a message over HTTPS."""
    assert Client(product.url, product.ca, product.token).submit(plain_message()).status == 200


def deliver(port: int, message: bytes) -> str:
    """Send a message over SMTP; return the reply."""
    return send_as_postfix(
        port, message, SENDER, [RECIPIENT], address="192.0.2.7", helo="mx.pass.example", patience=PATIENCE
    )


if __name__ == "__main__":
    sys.exit(main())
