"""Submits the same messages by SMTP, by the scanning API and by `/checkv2`, and compares the results.

All three go to one running guard. Verdict, decision and tags are read from history by the returned id. SMTP needs whole
lines and no NUL, so all three get the message in the form that SMTP can carry.
"""

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

import aiohttp
import uvloop

from mailwarden.model.envelope import Envelope
from workshop.evaluate.corpus import Corpus, Submission
from workshop.evaluate.progress import Meter, side_by_side
from workshop.rig.caller import HOST, SUBMIT, caller_context
from workshop.rig.engines import start_engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.postfix import Postfix
from workshop.rig.product import Product, start_product
from workshop.rig.smtp_sender import as_smtp_carries, send_as_postfix

MESSAGES = 1_000
SECONDS = 60.0
WAYS = ("SMTP", "scanning API", "/checkv2")
_GGRID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_PASSWORD = "of-this-run-alone"  # noqa: S105 - a listener on loopback, only during this run

Judged = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """The three ways into one guard."""

    session: aiohttp.ClientSession
    product: Product
    smtp_port: int
    check_port: int

    async def judge(self, posted: Submission) -> tuple[Judged, ...]:
        """Return the result of each source for a message, in the order of WAYS."""
        message = as_smtp_carries(posted.raw)
        ids = (
            await asyncio.to_thread(self._send, message, posted.envelope),
            await self._submit(message, posted.envelope),
            await self._check(message, posted.envelope),
        )
        return tuple([await self._explained(reply) for reply in ids])

    def _send(self, message: bytes, envelope: Envelope) -> str:
        """Send a message as Postfix does, and return the reply."""
        return send_as_postfix(
            self.smtp_port,
            message,
            envelope.sender,
            envelope.recipients,
            address=envelope.remote_address,
            helo=envelope.helo,
            patience=SECONDS,
        )

    async def _submit(self, message: bytes, envelope: Envelope) -> str:
        border = {
            "envelopeFrom": envelope.sender,
            "envelopeRecipients": list(envelope.recipients),
            "remoteAddress": envelope.remote_address,
            "senderHelo": envelope.helo,
        }
        form = aiohttp.FormData()
        given = json.dumps({"borderMtaData": {name: value for name, value in border.items() if value is not None}})
        form.add_field("parameters", given, content_type="application/json")
        form.add_field("email", message, content_type="message/rfc822")
        async with self.session.post(self.product.url + SUBMIT, data=form, headers=self._key) as answer:
            return await answer.text()

    async def _check(self, message: bytes, envelope: Envelope) -> str:
        headers = {"Password": _PASSWORD, "From": envelope.sender, "Rcpt": envelope.recipients[0]}
        if envelope.remote_address:
            headers["IP"] = envelope.remote_address
        if envelope.helo:
            headers["Helo"] = envelope.helo
        url = f"http://{HOST}:{self.check_port}/checkv2"
        async with self.session.post(url, data=message, headers=headers) as answer:
            fields = (await answer.json(content_type=None)).get("milter", {}).get("add_headers", {})
            return str(fields.get("X-Mailwarden-Ggrid", {}).get("value", "no id"))

    async def _explained(self, reply: str) -> Judged:
        found = _GGRID.search(reply)
        if found is None:
            return ("not judged", reply[:80])
        for _ in range(200):  # history is written a moment after the reply
            url = f"{self.product.url}/v1/messages/{found[0]}"
            async with self.session.get(url, headers=self._key) as answer:
                if answer.status == 200:
                    known = await answer.json()
                    return (known["verdict"], known["decision"], *sorted(known["tags"]))
            await asyncio.sleep(0.05)
        return ("not found", found[0])

    @property
    def _key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.product.token}"}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.evaluate.parity --corpus FOLDER"
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder with a labelled corpus")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="so many of it (default: %(default)s)")
    parser.add_argument("--unpacked", type=Path, default=Path("run/corpus"), help="where its messages are unpacked")
    arguments = parser.parse_args(words)
    corpus = Corpus(arguments.corpus, arguments.unpacked)
    corpus.unpack()
    posts = list(corpus.posts(corpus.samples("dev", arguments.messages), time()))
    with ExitStack() as stack:
        engines = stack.enter_context(start_engines())
        folder = Path(stack.enter_context(TemporaryDirectory()))
        queue = temporary_folder()
        stack.callback(remove_folder, queue)
        postfix, check_port = Postfix(queue, "before-queue", ("corp.example",), None), free_port()
        stack.callback(postfix.stop)
        smtp = {"listen": {"port": postfix.guard_port}, "nextHop": f"{HOST}:{postfix.back_port}"}
        door = {"listen": {"port": check_port}, "password": _PASSWORD}
        sources = {"restApi": {}, "smtp": smtp, "rspamdApi": door}
        url = engines.postgresql.create_database("parity")
        product = stack.enter_context(start_product(folder, engines, url, guards=[{"scanSources": sources}]))
        postfix.start()
        judged = uvloop.run(_judge_all(product, postfix.guard_port, check_port, posts))
    return print_differences(posts, judged)


async def _judge_all(product: Product, smtp: int, check: int, posts: Sequence[Submission]) -> list[tuple[Judged, ...]]:
    connector = aiohttp.TCPConnector(ssl=caller_context(product.ca))
    timeout = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        doors = Sources(session, product, smtp, check)
        return await side_by_side(posts, doors.judge, Meter(len(posts)).step)


def print_differences(posts: Sequence[Submission], judged: Sequence[tuple[Judged, ...]]) -> int:
    """Print the differences and their number; return 1 if there are any."""
    different = 0
    for posted, ways in zip(posts, judged, strict=True):
        if len(set(ways)) > 1 or ways[0][0].startswith("not "):
            different += 1
            print(posted.sample.path)
            for way, said in zip(WAYS, ways, strict=True):
                print(f"    {way:<13} {' '.join(said)}")
    verdicts = Counter(ways[0][0] for ways in judged)
    print(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))
    print(f"parity: {len(posts) - different} of {len(posts)} judged the same by {', '.join(WAYS)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
