"""`mailwarden scan`: send one message to abby, show the result and the reasons."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import aiohttp
import msgspec

from mailwarden.cli.command import Command, abby_authority, abby_url, add_address_options
from mailwarden.cli.database import tenant_uid
from mailwarden.errors import CommandError
from mailwarden.history.explanation import FactRecord, MessageExplanation, ReasonRecord
from mailwarden.hop.records import SUBMIT_PATH
from mailwarden.message.addresses import read_addresses
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.policy.judge import THREATS
from mailwarden.policy.rules import CONVICTION, SUSPICION
from mailwarden.serving.tls import client_context
from mailwarden.wire.scanning import BorderMtaData, MessageAnalysisRequest, MessageAnalysisResult

TOKEN_VARIABLE = "MAILWARDEN_TOKEN"  # noqa: S105 - the name of a variable, not its value
EXIT_CODES = {
    Decision.DELIVER: 0,
    Decision.QUARANTINE: 10,
    Decision.BOUNCE: 11,
    Decision.DROP: 12,
    Decision.UNDECIDED: 20,
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the raw message (.eml), or - for standard input")
    parser.add_argument("--from", dest="sender", help="envelope sender (default: the From header)")
    parser.add_argument("--to", dest="recipients", action="append", help="envelope recipient (default: the To header)")
    parser.add_argument("--ip", help="address of the sending MTA")
    parser.add_argument("--helo", help="HELO of the sending MTA")
    parser.add_argument(
        "--tenant",
        metavar="TENANT",
        help="name or UUID of the tenant to scan for (default: by the recipients' domains)",
    )
    parser.add_argument("--token-file", type=Path, help=f"file with the token (default: ${TOKEN_VARIABLE}, or `token`)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")
    parser.add_argument("--rules", action="store_true", help="also print every rule that matched")
    codes = ", ".join(f"{decision} {code}" for decision, code in EXIT_CODES.items())
    parser.add_argument("--exit-code", action="store_true", help=f"use the decision as exit code: {codes}")
    add_address_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    raw = _read_message(arguments.file)
    parameters = make_parameters(arguments, raw)
    result, explanation = asyncio.run(submit(arguments, raw, parameters))
    if arguments.output == "json":
        answer = msgspec.to_builtins(result) | {"explanation": msgspec.to_builtins(explanation)}
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        print(render(result, explanation, every_rule=arguments.rules))
    return EXIT_CODES[Decision(result.decision)] if arguments.exit_code else 0


def render(result: MessageAnalysisResult, explanation: MessageExplanation | None, *, every_rule: bool = False) -> str:
    """Return the result as text: decision, verdict, and the facts with the points that they add up to."""
    took = (result.completed - result.created).total_seconds() * 1000
    lines = [
        f"decision  {result.decision}{_deciding_step(explanation)}",
        f"verdict   {result.verdict}",
        f"tags      {', '.join(result.tags) or '-'}",
        f"ggrid     {result.ggrid}  ({took:.0f} ms)",
        "",
    ]
    if explanation is None:
        return "\n".join([*lines, "Because: not available; the token lacks the permission messageQueue.read."])
    lines += [explanation.summary, ""]
    weighing = {(reason.rule, reason.verdict) for reason in explanation.reasons if reason.weight}
    lines += [_fact_line(fact, weighing) for fact in explanation.facts if fact.points]
    lines += _sums(explanation)
    lines += [_fact_line(fact) for fact in explanation.facts if not fact.points]
    lines += [f"        not done  {engine.failure}" for engine in explanation.engines if engine.failure]
    if every_rule:
        lines += ["", "All rules:", *map(_rule_line, explanation.reasons)]
    elif explanation.reasons:
        lines += ["", f"All {len(explanation.reasons)} rules: --rules"]
    return "\n".join(lines)


def _fact_line(fact: FactRecord, weighing: Collection[tuple[str, str]] = ()) -> str:
    """Return a fact, with the number of its rules if the points are of several."""
    rules = sum((rule, fact.verdict) in weighing for rule in set(fact.rules))
    points, of = f"{fact.points:+}" if fact.points else "", f" ({rules} rules)" if rules > 1 else ""
    return f"{points:>6}  {fact.topic.partition('.')[0]:<8}  {fact.sentence}{of}"


def _sums(explanation: MessageExplanation) -> Iterator[str]:
    """Yield the points of each explained verdict, what they lead to, and the points of the others."""
    shown: dict[str, int] = {}
    for fact in explanation.facts:
        if fact.points:
            shown[fact.verdict] = shown.get(fact.verdict, 0) + fact.points
    for verdict, points in shown.items():
        total = explanation.points[verdict]
        if total != points:
            yield f"{total - points:>+6}  smaller facts"
        yield _sum_line(total, verdict, f"{CONVICTION} are {'enough' if total >= CONVICTION else 'needed'}")
    threat = sum(points for verdict, points in explanation.points.items() if verdict in THREATS and points > 0)
    if explanation.verdict == Verdict.SUSPICIOUS and threat >= SUSPICION:
        yield _sum_line(threat, "threats", f"{SUSPICION} of all threats are enough for {Verdict.SUSPICIOUS}")
    others = {verdict: points for verdict, points in explanation.points.items() if points > 0 and verdict not in shown}
    if others:
        first = f"; {explanation.verdict} comes first" if max(others.values()) >= CONVICTION else ""
        yield f"        also      {', '.join(f'{verdict} {points}' for verdict, points in others.items())}{first}"


def _sum_line(points: int, of: str, result: str) -> str:
    return f"{f'= {points}':>6}  {of:<8}  {result}"


def _deciding_step(explanation: MessageExplanation | None) -> str:
    """Return the last step of the decision trace that says how the decision came about."""
    if explanation is None:
        return ""
    of = explanation.decision
    ends = (f": {of}", f": {of} stands", f": {of} instead", ": not delivered", "in every profile", "may deliver it")
    steps = [step for step in explanation.decision_trace if step.step != "monitor" and step.outcome.endswith(ends)]
    because = f": {steps[-1].outcome.removesuffix(f': {of}')}" if steps else ""
    return because + ("; submit it again later, or hold it" if of == Decision.UNDECIDED else "")


def _rule_line(reason: ReasonRecord) -> str:
    place = f" [{reason.place}]" if reason.place else ""
    return f"{reason.weight:>+6}  {reason.verdict:<10}  {reason.rule}: {reason.summary}{place}"


def _read_message(name: str) -> bytes:
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"Cannot read {name}: {error.strerror}.") from None
    if not raw:
        raise CommandError(f"{name} is empty; give a raw message with its headers.")
    return raw


def make_parameters(arguments: argparse.Namespace, raw: bytes) -> bytes:
    sender = arguments.sender if arguments.sender is not None else next(iter(addresses_of(raw, b"from")), "")
    recipients = arguments.recipients or addresses_of(raw, b"to")
    if not recipients:
        raise CommandError("The message names no recipient; say --to ADDRESS.")
    border = BorderMtaData(
        envelope_from=sender,
        envelope_recipients=tuple(recipients),
        remote_address=arguments.ip,
        sender_helo=arguments.helo,
    )
    record = msgspec.to_builtins(MessageAnalysisRequest(border_mta_data=border))
    if arguments.tenant:
        record["tenantUid"] = str(tenant_uid(arguments, arguments.tenant))
    return msgspec.json.encode(record)


def addresses_of(raw: bytes, name: bytes) -> list[str]:
    """Return the addresses of the first header field of that name; only the header is read."""
    head = raw[:262_144].replace(b"\r\n", b"\n").split(b"\n\n", 1)[0].replace(b"\n ", b" ").replace(b"\n\t", b" ")
    for line in head.split(b"\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return [found.address for found in read_addresses(value.decode("utf-8", "replace")) if found.address]
    return []


async def submit(
    arguments: argparse.Namespace, raw: bytes, parameters: bytes
) -> tuple[MessageAnalysisResult, MessageExplanation | None]:
    headers = {"Authorization": f"Bearer {_token(arguments)}"}
    ca = abby_authority(arguments)
    connector = aiohttp.TCPConnector(ssl=client_context(ca) if ca else True)
    form = aiohttp.FormData()
    form.add_field("parameters", parameters.decode(), content_type="application/json")
    form.add_field("email", raw, filename="message.eml", content_type="message/rfc822")
    url = abby_url(arguments)
    try:
        async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:
            async with session.post(SUBMIT_PATH, data=form) as response:
                body = await response.read()
                if response.status != 200:
                    raise CommandError(f"{url} answered {response.status}: {_error_text(body)}")
                result = msgspec.json.decode(body, type=MessageAnalysisResult)
            async with session.get(f"/v1/messages/{result.ggrid}") as response:
                body = await response.read()
                known = response.status == 200
                return result, msgspec.json.decode(body, type=MessageExplanation) if known else None
    except aiohttp.ClientError as error:
        raise CommandError(f"Cannot reach abby at {url}: {error}. Is it running? Try `mailwarden doctor`.") from None


def _error_text(body: bytes) -> str:
    try:
        error = json.loads(body)
        return f"{error['error']}: {error.get('message', '')}"
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token_file is None and TOKEN_VARIABLE in os.environ:
        return os.environ[TOKEN_VARIABLE].strip()
    path = arguments.token_file or arguments.config / "token"
    try:
        return str(path.read_text()).strip()
    except OSError as error:
        raise CommandError(f"Cannot read the token from {path}: {error.strerror}. Set ${TOKEN_VARIABLE}.") from None


COMMAND = Command(
    example="mailwarden scan invoice.eml --ip 203.0.113.7 --helo mail.sender.example",
    arguments=_arguments,
    run=_run,
)
