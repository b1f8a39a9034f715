"""`mailwarden receivers`: adds, tests and removes the receivers of events."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.cli.command import Command, add_action, by_action, operator, print_json, shown, table
from mailwarden.cli.database import add_query_options, query_database, tenant_uid
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.http_client import DeliveryFailed
from mailwarden.event_delivery.model import Format, Kind, NewReceiver, Receiver, State
from mailwarden.event_delivery.opening import open_channels, open_receivers
from mailwarden.event_delivery.service import ReceiverService
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read

T = TypeVar("T")
ALL = Scope.deployment()


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = add_action(
        actions,
        "add",
        "add a receiver; it gets the events from now on, and its secret is shown once",
        "mailwarden receivers add soar https://soar.example/hook --tenant acme --type message.held",
    )
    add.add_argument("name", metavar="NAME", help="name of the receiver")
    add.add_argument(
        "url", metavar="TARGET", help="https://… for a webhook, tls://host:6514 for syslog, a file name for a file"
    )
    add.add_argument("--kind", choices=[kind.value for kind in Kind], default="webhook", help="default: webhook")
    add.add_argument("--format", choices=[each.value for each in Format], default="native", help="default: native")
    add.add_argument(
        "--type", action="append", default=[], metavar="TYPE", help="event type; repeatable (default: all)"
    )
    add.add_argument(
        "--tenant", action="append", default=[], metavar="TENANT",
        help="name or UUID of a tenant; repeatable (default: all tenants and the deployment)",
    )  # fmt: skip
    add.add_argument("--batch", type=int, default=1, metavar="N", help="up to N events in one webhook (default: 1)")
    add.add_argument(
        "--batch-seconds", type=int, default=0, metavar="S", help="how long a batch waits for more events (default: 0)"
    )
    show = add_action(
        actions, "list", "show the receivers and the state of their deliveries", "mailwarden receivers list"
    )
    test = add_action(actions, "test", "send one test event from this host", "mailwarden receivers test soar")
    rotate = add_action(
        actions,
        "rotate",
        "make a new secret; both sign for a time",
        "mailwarden receivers rotate soar --overlap 48",
    )
    rotate.add_argument(
        "--overlap", type=int, default=24, metavar="HOURS", help="how long the old secret signs too (default: 24)"
    )
    enable = add_action(
        actions,
        "enable",
        "continue after the last acknowledged event",
        "mailwarden receivers enable soar",
    )
    disable = add_action(actions, "disable", "stop deliveries", "mailwarden receivers disable soar")
    remove = add_action(actions, "remove", "remove a receiver", "mailwarden receivers remove soar")
    for action in (test, rotate, enable, disable, remove):
        action.add_argument("receiver", metavar="RECEIVER", help="name or UUID of the receiver")
    add_query_options(add, show, test, rotate, enable, disable, remove)


def _add(options: argparse.Namespace) -> int:
    wanted = NewReceiver(
        name=options.name,
        kind=Kind(options.kind),
        url=options.url,
        format=Format(options.format),
        types=frozenset(options.type) or None,
        tenants=frozenset(tenant_uid(options, each) for each in options.tenant) or None,
        batch_size=options.batch,
        batch_seconds=options.batch_seconds,
    )
    made, secret = _ask(options, lambda service: service.add(ALL, wanted, operator()))
    return _show_once(options, made, secret)


def _rotate(options: argparse.Namespace) -> int:
    overlap = timedelta(hours=options.overlap)

    async def rotate(service: ReceiverService) -> tuple[Receiver, str]:
        found = await _found(service, options.receiver)
        return await service.rotate(ALL, found.uid, operator(), overlap)

    return _show_once(options, *_ask(options, rotate))


def _show_once(options: argparse.Namespace, receiver: Receiver, secret: str) -> int:
    if options.output == "json":
        print_json({**_record(receiver), **({"secret": secret} if secret else {})})
    elif secret:
        print(secret)  # on its own line, so that `> file` stores only the secret
        print(f"This is shown once. The receiver verifies webhooks with it. Id: {receiver.uid}.", file=sys.stderr)
    else:
        print(f"Added {shown(receiver.name)}, {receiver.uid}.")
    return 0


def _list(options: argparse.Namespace) -> int:
    receivers = _ask(options, lambda service: service.list(ALL))
    if options.output == "json":
        print_json([_record(receiver) for receiver in receivers])
    else:
        print(_table(receivers))
    return 0


def _test(options: argparse.Namespace) -> int:
    config = read(options.config / PATH, AbbyConfig)
    pepper = read_ring(options.config / config.api_key_pepper, "apiKeyPepper")
    authority = options.config / config.events.ca if config.events.ca else None
    folder = options.config / config.events.folder
    rules = AddressRules.of(config.events.allow_private_networks, config.events.refuse_networks)

    async def test(database: Database) -> UUID:
        service = open_receivers(database, pepper)
        receiver = await _found(service, options.receiver)
        async with open_channels(rules, authority, folder, pepper) as channels:
            return (await service.test(ALL, receiver.uid, channels, operator())).id

    try:
        event = query_database(options, test)
    except DeliveryFailed as failure:
        raise CommandError(f"The test event was not delivered. {failure.sentence}") from None
    if options.output == "json":
        print_json({"event": event, "delivered": True})
    else:
        print(f"The receiver accepted the test event {event}.")
    return 0


def _enable(options: argparse.Namespace) -> int:
    return _change(options, "Enabled", lambda service, uid: service.enable(ALL, uid, operator()))


def _disable(options: argparse.Namespace) -> int:
    return _change(options, "Disabled", lambda service, uid: service.disable(ALL, uid, operator()))


def _remove(options: argparse.Namespace) -> int:
    return _change(options, "Removed", lambda service, uid: service.remove(ALL, uid, operator()))


def _change(options: argparse.Namespace, done: str, work: Callable[[ReceiverService, UUID], Awaitable[object]]) -> int:
    async def change(service: ReceiverService) -> Receiver:
        found = await _found(service, options.receiver)
        await work(service, found.uid)
        return found

    receiver = _ask(options, change)
    if options.output == "json":
        print_json({"uid": receiver.uid, "name": receiver.name, "done": done.lower()})
    else:
        print(f"{done} {shown(receiver.name)}.")
    return 0


async def _found(service: ReceiverService, named: str) -> Receiver:
    """Return the receiver of this name or UUID; a name may exist once for each set of tenants."""
    found = [each for each in await service.list(ALL) if named.casefold() in (each.name.casefold(), str(each.uid))]
    if not found:
        raise CommandError(f"There is no receiver `{named}`; `mailwarden receivers list` shows them.")
    if len(found) > 1:
        raise CommandError(f"{len(found)} receivers are named `{named}`: write the UUID that `list` shows.")
    return found[0]


def _ask(options: argparse.Namespace, question: Callable[[ReceiverService], Awaitable[T]]) -> T:
    config = read(options.config / PATH, AbbyConfig)
    pepper = read_ring(options.config / config.api_key_pepper, "apiKeyPepper")
    return query_database(options, lambda database: question(open_receivers(database, pepper)))


def _record(receiver: Receiver) -> dict[str, object]:
    return {
        "uid": receiver.uid,
        "name": receiver.name,
        "kind": receiver.kind,
        "format": receiver.format,
        "target": receiver.target,
        "types": None if receiver.types is None else sorted(receiver.types),
        "tenants": None if receiver.tenants is None else sorted(receiver.tenants),
        "batch": receiver.batch_size,
        "batchSeconds": receiver.batch_seconds,
        "state": receiver.state,
        "failingSince": receiver.failing_since,
        "lastError": receiver.last_error,
        "lastDelivery": receiver.last_delivery,
        "delivered": receiver.delivered,
        "failedAttempts": receiver.failed,
        "lostAtMost": receiver.lost,
    }


def _table(receivers: Sequence[Receiver]) -> str:
    rows = [("UUID", "NAME", "KIND", "FORMAT", "STATE", "DELIVERED", "TARGET", "LAST ERROR")]
    for receiver in receivers:
        error = receiver.last_error + (f" At most {receiver.lost} events were lost." if receiver.lost else "")
        rows.append(
            (
                str(receiver.uid),
                shown(receiver.name),
                receiver.kind.value,
                receiver.format.value,
                _state(receiver),
                str(receiver.delivered),
                shown(receiver.target),
                shown(error),
            )
        )
    return table(rows)


def _state(receiver: Receiver) -> str:
    if receiver.state is State.ENABLED and receiver.failing_since is not None:
        return f"failing since {receiver.failing_since:%Y-%m-%d %H:%M}"
    return receiver.state.value


COMMAND = Command(
    example="mailwarden receivers add siem siem.ndjson --kind file --format ocsf",
    arguments=_arguments,
    run=by_action(add=_add, list=_list, test=_test, rotate=_rotate, enable=_enable, disable=_disable, remove=_remove),
)
