"""Makes the synchronous client from the asyncio client: the same methods without `async`, on the thread's transport.

Both wheels (the server's and the client's) run it as a build hook of hatchling, also where the install is editable.
"""

import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "mailwarden_client"
SOURCE, MADE = PACKAGE / "asynchronous.py", PACKAGE / "synchronous.py"
CHANGES = (
    (r"\A.*\n", '"""The synchronous client, made by clients/python/generate_sync.py from asynchronous.py."""\n'),
    (r"\b(async|await) ", ""),
    (r"\bAsync(Iterator|Client|EntryStream|MessageStream)\b", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(iter|enter|exit)__", r"__\1__"),
    (
        r"(from mailwarden_client\.transport import .*)\bTransport, ",
        r"from mailwarden_client.thread_transport import ThreadTransport as Transport\n\1",
    ),
)


def generate():
    text = SOURCE.read_text(encoding="utf-8")
    for pattern, new in CHANGES:
        text, count = re.subn(pattern, new, text)
        if not count:
            raise ValueError(f"asynchronous.py has nothing of {pattern}: mend generate_sync.py")
    MADE.write_text(text, encoding="utf-8")


class SynchronousClient(BuildHookInterface):
    def initialize(self, version, build_data):
        generate()


if __name__ == "__main__":
    generate()
