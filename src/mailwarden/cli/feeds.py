"""`mailwarden feeds`: subscribes to feeds, shows them, updates them, and decides on updates that wait."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.cli.command import Command, add_action, operator, print_json, shown, table
from mailwarden.cli.database import add_query_options, database_url, find_tenant, unreachable
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.feeds.assembly import COMMAND_SECONDS, CONNECTIONS, open_feeds
from mailwarden.feeds.http_client import open_http, trust_of
from mailwarden.feeds.job import LEASE, FeedJob
from mailwarden.feeds.model import (
    TARGETS,
    WARNING_TEXTS,
    Feed,
    FeedFormat,
    FeedSettings,
    SightingFormat,
    Update,
    UpdateState,
)
from mailwarden.feeds.service import FeedService
from mailwarden.feeds.text_formats import FieldMapping
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.model.scope import Scope
from mailwarden.policy.rules import load_policy
from mailwarden.settings.reader import read
from mailwarden.telemetry.metrics import Metrics

T = TypeVar("T")

ALL = Scope.deployment()
_SHOWN = 20
_FIELDS = msgspec.structs.fields(FieldMapping)
# The options of `add` that are a number, with their meaning.
_NUMBERS = {
    "interval": "seconds between two updates",
    "ttl-days": "days that an entry stays after the feed dropped it",
    "min-confidence": "leave out indicators with a lower confidence, 0 to 100",
    "good-mail-budget": "good messages of the last 30 days that an update may hit without approval",
    "max-growth": "per cent of new entries above which an update waits",
    "max-shrink": "per cent of missing entries above which an update waits",
    "max-change": "new or missing entries above which an update waits",
    "max-left-out": "entries on warning lists above which an update waits",
    "max-bytes": "size of the feed above which an update is rejected",
    "max-entries": "entries above which an update is rejected",
}


class Tools(msgspec.Struct, frozen=True):
    """The database with the service and the job on it."""

    database: Database
    service: FeedService
    job: FeedJob


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = add_action(
        actions,
        "add",
        "subscribe to a feed",
        "mailwarden feeds add phish --source https://feeds.example/phish.csv --format csv --map value=url "
        "--list url-block --tenant acme",
    )
    _add_options(add)
    ls = add_action(actions, "list", "show all feeds and their state", "mailwarden feeds list")
    show = add_action(
        actions, "show", "show one feed, its updates and the preview that waits", "mailwarden feeds show phish"
    )
    update = add_action(
        actions, "update", "fetch and rehearse a feed now; apply it if nothing speaks against it",
        "mailwarden feeds update phish",
    )  # fmt: skip
    approve = add_action(actions, "approve", "apply the update that waits", "mailwarden feeds approve phish")
    reject = add_action(actions, "reject", "discard the update that waits", "mailwarden feeds reject phish")
    remove = add_action(
        actions,
        "remove",
        "end a subscription and delete the entries that it alone gave",
        "mailwarden feeds remove phish",
    )
    for action in (show, update, approve, reject, remove):
        action.add_argument("name", metavar="NAME", help="name or UUID of the feed")
    for action in (add, ls, show, update, approve, reject, remove):
        action.add_argument("--tenant", metavar="TENANT", help="name or UUID of the tenant (default: the global lists)")
        add_query_options(action)


def _add_options(add: argparse.ArgumentParser) -> None:
    add.add_argument("name", metavar="NAME", help="name of the feed, unique in its scope")
    add.add_argument("--source", required=True, metavar="URL", help="https:// URL, or absolute path on abby's host")
    add.add_argument("--format", required=True, choices=[each.value for each in FeedFormat], help="format of the feed")
    add.add_argument("--list", required=True, dest="list_name", choices=list(TARGETS), help="list to fill")
    add.add_argument(
        "--map", action="append", default=[], metavar="FIELD=COLUMN",
        help=f"column or field of CSV and NDJSON; FIELD is one of {', '.join(field.encode_name for field in _FIELDS)}; "
        "repeatable",
    )  # fmt: skip
    add.add_argument(
        "--credential-file", type=Path, metavar="FILE",
        help="file with one request header, `Authorization: Bearer …`; it is stored encrypted",
    )  # fmt: skip
    for name, text in _NUMBERS.items():
        add.add_argument(f"--{name}", type=int, metavar="NUMBER", help=text)
    add.add_argument(
        "--accept-unseen", action="store_true",
        help="apply file hashes, and IP addresses behind trusted relays, although history does not keep all messages "
        "that they may match",
    )  # fmt: skip
    add.add_argument("--sighting-url", default="", metavar="URL", help="where hits are reported (default: nowhere)")
    add.add_argument(
        "--sighting-format", choices=[each.value for each in SightingFormat], default="ndjson",
        help="format of the report",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    work = {
        "add": _add, "list": _list, "show": _show, "update": _update, "approve": _decide, "reject": _decide,
        "remove": _remove,
    }[options.action]  # fmt: skip
    return _with_service(options, lambda tools: work(options, tools))


async def _add(options: argparse.Namespace, tools: Tools) -> int:
    tenant = (await find_tenant(tools.database, options.tenant)).uid if options.tenant else None
    feed = await tools.service.add(tenant, options.name, _settings(options), operator(), _credential(options))
    _print(options, _record(feed), f"{feed.name} fills {feed.settings.list_name}. abby updates it within a minute.")
    return 0


async def _list(options: argparse.Namespace, tools: Tools) -> int:
    feeds = await _feeds(options, tools)
    rows = [("FEED", "LIST", "SCOPE", "LAST FETCHED", "STATE")]
    records = []
    for feed in feeds:
        waiting = await tools.service.store.open_update(feed, UpdateState.WAITING)
        state = "waits for approval" if waiting else feed.failure or "in order"
        fetched = "never" if feed.fetched is None else f"{feed.fetched:%Y-%m-%d %H:%M}"
        rows.append((feed.name, feed.settings.list_name, str(feed.tenant or "global"), fetched, shown(state)))
        records.append({**_record(feed), "waiting": waiting is not None})
    _print(options, records, table(rows) if feeds else "No feeds. `mailwarden feeds add --help` has an example.")
    return 0


async def _show(options: argparse.Namespace, tools: Tools) -> int:
    feed = await _find(options, tools)
    entries, dropped = await tools.service.store.totals(feed)
    updates = await tools.service.store.updates(feed)
    record = {**_record(feed), "entries": entries, "dropped": dropped, "updates": updates}
    lines = [
        f"{feed.name}: {feed.settings.format} from {feed.settings.shown_source} into {feed.settings.list_name}",
        f"{entries:,} entries, of which the feed dropped {dropped:,}",
        *([f"last run failed: {shown(feed.failure)}"] if feed.failure else []),
        *(line for update in updates[:1] for line in _preview_lines(update)),
    ]
    _print(options, record, "\n".join(lines))
    return 0


async def _update(options: argparse.Namespace, tools: Tools) -> int:
    feed = await _claimed(tools, await _find(options, tools))
    async with tools.job.given_back_on_failure(feed):
        outcome = await tools.job.run(feed)
    feed = await tools.service.store.find(ALL, feed.uid)
    if outcome is None:
        raise CommandError(f"{feed.name} was not updated: {feed.failure}")
    updates = await tools.service.store.updates(feed, 1)
    lines = [f"{feed.name}: {outcome}", *(line for update in updates for line in _preview_lines(update))]
    _print(options, {"outcome": outcome, "update": updates[0] if updates else None}, "\n".join(lines))
    return 0


async def _decide(options: argparse.Namespace, tools: Tools) -> int:
    feed = await _find(options, tools)
    waiting = await tools.service.store.open_update(feed, UpdateState.WAITING)
    if waiting is None:
        raise CommandError(f"No update of {feed.name} waits. `mailwarden feeds show {feed.name}` shows its updates.")
    if options.action == "reject":
        await tools.service.reject(feed, waiting.uid, operator())
        _print(options, {"state": "rejected"}, f"The update of {feed.name} is rejected. The list did not change.")
        return 0
    await tools.service.approve(feed, waiting.uid, operator())
    added = f"{waiting.preview.added:,} entries are added"
    _print(options, {"state": "approved"}, f"The update of {feed.name} is approved: {added}, abby applies it now.")
    return 0


async def _remove(options: argparse.Namespace, tools: Tools) -> int:
    feed = await _claimed(tools, await _find(options, tools))
    async with tools.job.given_back_on_failure(feed):
        removed = await tools.service.remove(feed, operator())
    _print(options, {"deleted": removed}, f"{feed.name} is removed, with {removed:,} entries that it alone gave.")
    return 0


async def _claimed(tools: Tools, feed: Feed) -> Feed:
    claimed = await tools.service.store.claim(ALL, tools.service.now(), LEASE, feed.uid)
    if claimed is None:
        raise CommandError("Another feed is being updated. Try again in a minute.")
    return claimed


async def _feeds(options: argparse.Namespace, tools: Tools) -> Sequence[Feed]:
    if not options.tenant:
        return await tools.service.store.list(ALL)
    return await tools.service.store.list(Scope.of((await find_tenant(tools.database, options.tenant)).uid))


async def _find(options: argparse.Namespace, tools: Tools) -> Feed:
    found = [feed for feed in await _feeds(options, tools) if options.name in (feed.name, str(feed.uid))]
    if not found:
        raise CommandError(f"There is no feed `{options.name}`; `mailwarden feeds list` shows all feeds.")
    if len(found) > 1:
        raise CommandError(f"Several feeds are named `{options.name}`: add --tenant, or give the UUID.")
    return found[0]


def _settings(options: argparse.Namespace) -> FeedSettings:
    values: dict[str, object] = {
        "source": options.source, "format": options.format, "listName": options.list_name,
        "mapping": _mapping(options.map), "sightingUrl": options.sighting_url,
        "sightingFormat": options.sighting_format, "acceptUnseen": options.accept_unseen,
    }  # fmt: skip
    for name in _NUMBERS:
        if (number := getattr(options, name.replace("-", "_"))) is not None:
            first, *rest = name.split("-")
            values[first + "".join(map(str.title, rest))] = number
    try:
        return msgspec.convert(values, FeedSettings).checked()
    except msgspec.ValidationError as error:
        raise CommandError(f"{error}.") from None


def _mapping(pairs: Sequence[str]) -> dict[str, str]:
    names = {each.encode_name for each in _FIELDS}
    mapping = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        if not equals or field not in names:
            raise CommandError(f"`{pair}` is not FIELD=COLUMN; the fields are {', '.join(sorted(names))}.")
        mapping[field] = column
    return mapping


def _credential(options: argparse.Namespace) -> str:
    if options.credential_file is None:
        return ""
    try:
        return str(options.credential_file.read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {options.credential_file}: {error}.") from None


def _preview_lines(update: Update) -> Sequence[str]:
    preview = update.preview
    figures = (
        f"{preview.added:,} new, {preview.dropped:,} dropped, {preview.left_out_total:,} left out, "
        f"{preview.good_mail:,} good messages hit in 30 days"
    )
    return [
        f"{update.fetched:%Y-%m-%d %H:%M} {update.state}: {figures}",
        *(f"  waits: {wait.sentence}" for wait in preview.waits),
        *(f"  left out: {shown(e.entry)} ({WARNING_TEXTS[e.warning]})" for e in preview.left_out_entries[:_SHOWN]),
        *(f"  good mail: {shown(e.sender)}: {shown(e.subject)} ({e.entry})" for e in preview.messages[:_SHOWN]),
        *(f"  skipped: {number:,} × {shown(reason)}" for reason, number in preview.skipped.items()),
    ]


def _record(feed: Feed) -> dict[str, object]:
    return {
        "uid": feed.uid,
        "name": feed.name,
        "tenantUid": feed.tenant,
        "settings": feed.settings,
        "hasCredential": feed.sealed is not None,
        "nextRun": feed.next_run,
        "fetched": feed.fetched,
        "failure": feed.failure,
    }


def _print(options: argparse.Namespace, record: object, text: str) -> None:
    if options.output == "json":
        print_json(record)
    else:
        print(text)


def _with_service(options: argparse.Namespace, work: Callable[[Tools], Awaitable[T]]) -> T:
    config = read(options.config / PATH, AbbyConfig)
    ring = read_ring(options.config / config.contents.key, "contents.key")

    async def ask() -> T:
        database = Database(database_url(options), CONNECTIONS, COMMAND_SECONDS, pooled=True)
        clickhouse = open_clickhouse(config.history, options.config)
        try:
            rules = AddressRules.of(config.feeds.allowed_networks, config.events.refuse_networks)
            async with open_http(rules, trust_of(options.config, config.feeds.ca)) as http:
                service = open_feeds(database, http, ring, load_policy(), clickhouse=clickhouse)
                return await work(Tools(database, service, FeedJob(service, http, Metrics())))
        finally:
            if clickhouse is not None:
                await clickhouse.close()
            await database.close()

    try:
        return asyncio.run(ask())
    except StorageUnavailable as error:
        raise unreachable(error) from None


COMMAND = Command(
    example="mailwarden feeds add phish --source https://feeds.example/phish.txt --format text --list url-block",
    arguments=_arguments,
    run=_run,
)
