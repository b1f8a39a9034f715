"""Writes docs/explanations.md: ten messages of the demo, with what `mailwarden scan` prints of each.

`make explanations` starts the rig's servers and the demo, which takes minutes: no test makes this page. The
output before decision 118 is in explanations.yml; the rules of that time are gone.
"""

import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

from mailwarden.cli.scan import render
from mailwarden.history.explanation import MessageExplanation
from mailwarden.wire.scanning import MessageAnalysisResult
from mailwarden_client import Client
from workshop.rig.demo import Demo
from workshop.rig.engines import start_engines

PAGE = Path("docs/explanations.md")
_HEAD = """<!-- Made from the code by `make explanations`; change workshop/pages/explanations.yml, not this page. -->

# Ten explanations

For analysts. These are ten messages of [the demo](demo.md), each with what `mailwarden scan` prints of it, but for the
line with the id of the message. Below is how much was printed while an explanation listed every rule
([decision 118](decisions/0118-facts-of-an-explanation.md)); [How a verdict is made](how-a-verdict-is-made.md) explains
the lines.
"""


class Before(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output for the message before decision 118."""

    rules: int
    lines: int
    output: str = ""  # of the worst only


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message: the oldest that the search finds."""

    title: str
    about: str
    search: str
    before: Before


def main() -> None:
    file = Path(__file__).with_suffix(".yml")
    examples = msgspec.convert(YAML(typ="safe").load(file.read_text("utf-8")), list[Example])
    with tempfile.TemporaryDirectory() as name, start_engines(progress=print) as engines:
        demo = Demo(Path(name), engines)
        demo.start()
        try:
            text = _page(demo, examples)
        finally:
            demo.stop()
    PAGE.write_text(text, "utf-8")
    print(PAGE)


def _page(demo: Demo, examples: Sequence[Example]) -> str:
    configuration = demo.folder / "config"
    token = (configuration / "token").read_text("ascii").strip()
    with Client(demo.address, token=token, ca=configuration / "tls/ca.crt") as client:
        return "\n".join([_HEAD, *(line for example in examples for line in _section(client, example))])


def _section(client: Client, example: Example) -> Iterator[str]:
    found = next(client.search(example.search, order="oldest"))
    explanation = msgspec.convert(client.explain(found.ggrid, found.tenant_uid), MessageExplanation)
    lines = printed(explanation)
    before = example.before
    yield f"## {example.title}\n{example.about} Its subject: “{explanation.message.subject}”\n"
    yield "\n".join(["```text", *lines, "```\n"])
    yield f"Before: {before.rules} rules in {before.lines} lines. Now: {len(lines)} lines.\n"
    if before.output:
        yield "<details>\n<summary>The output before</summary>\n"
        yield f"<pre>{escape(before.output.strip(), quote=False)}</pre>\n\n</details>\n"


def printed(explanation: MessageExplanation) -> list[str]:
    """Return the lines of `mailwarden scan`, but for the one with the id and the duration."""
    result = MessageAnalysisResult(
        explanation.ggrid,
        explanation.created,
        explanation.completed,
        explanation.decision,
        explanation.verdict,
        explanation.tags,
    )
    return [line for line in render(result, explanation).splitlines() if not line.startswith("ggrid ")]


if __name__ == "__main__":
    main()
