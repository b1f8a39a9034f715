"""Loads one YAML file as mappings and lists with line numbers, within limits and without tags."""

from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.tokens import (
    AliasToken,
    AnchorToken,
    BlockEndToken,
    BlockMappingStartToken,
    BlockSequenceStartToken,
    DirectiveToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
    TagToken,
)

MAX_BYTES = 262_144
MAX_DEPTH = 32
_FORBIDDEN = {AliasToken: "alias", AnchorToken: "anchor", TagToken: "tag", DirectiveToken: "directive"}
_OPENING = (BlockMappingStartToken, BlockSequenceStartToken, FlowMappingStartToken, FlowSequenceStartToken)
_CLOSING = (BlockEndToken, FlowMappingEndToken, FlowSequenceEndToken)


class NotADocument(Exception):
    """The file cannot be loaded; each problem has its line."""

    def __init__(self, *problems: tuple[int, str]) -> None:
        super().__init__("\n".join(problem for _, problem in problems))
        self.problems = problems


class _Constructor(RoundTripConstructor):
    """Keeps line numbers, but makes plain floats, as validation expects."""


_Constructor.add_constructor("tag:yaml.org,2002:float", SafeConstructor.construct_yaml_float)


def load(path: Path) -> object:
    """Return the document as mappings and lists with line numbers, or raise NotADocument."""
    text = _read(path)
    try:
        forbidden = tuple(_forbidden(text))
        if forbidden:
            raise NotADocument(*forbidden)
        yaml = YAML(typ="rt")
        yaml.Constructor = _Constructor
        node: object = yaml.load(text)
    except DuplicateKeyError as error:
        # the rest of the parser's sentence may contain a secret
        key = str(error.problem).partition('"')[2].partition('"')[0]
        raise NotADocument((_line(error), f"the key `{key}` occurs twice in one mapping")) from None
    except MarkedYAMLError as error:
        raise NotADocument((_line(error), f"not YAML: {error.problem}")) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotADocument((line, "not YAML: a control character")) from None
    except (YAMLError, ValueError) as error:
        raise NotADocument((1, f"not YAML: {str(error).splitlines()[0]}")) from None
    return {} if node is None else node


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotADocument((1, f"cannot be read: {error.strerror or error}")) from None
    if len(raw) > MAX_BYTES:
        raise NotADocument((1, f"is larger than {MAX_BYTES:,} bytes, which no configuration needs"))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotADocument((line, "is not UTF-8")) from None


def _forbidden(text: str) -> Iterator[tuple[int, str]]:
    depth = 0
    for token in YAML(typ="rt").scan(text):
        line = token.start_mark.line + 1
        if isinstance(token, _OPENING):
            depth += 1
        elif isinstance(token, _CLOSING):
            depth -= 1
        if depth > MAX_DEPTH:
            yield line, f"is nested more than {MAX_DEPTH} levels deep"
            return
        if name := _FORBIDDEN.get(type(token)):
            yield line, f"an {name} is not allowed here" if name[0] == "a" else f"a {name} is not allowed here"


def _line(error: MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return int(mark.line) + 1 if mark else 1
