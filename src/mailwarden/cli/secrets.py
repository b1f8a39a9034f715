"""`mailwarden secrets`: lists the keys of `contents` and `pepper`, adds new ones, and removes unused ones.

A rotation loses nothing: the old key stays in the file and decrypts its data until nothing needs it.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from msgspec import Struct, structs

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.access.factors import totp_context
from mailwarden.access.login import CONSOLE_SEAL
from mailwarden.access.pepper import PepperStore
from mailwarden.cli.command import Command, add_action, print_json, table
from mailwarden.cli.database import add_database_options, query_database
from mailwarden.cli.key_files import new_key, today, write_ring
from mailwarden.crypto.keyring import BrokenSeal, Key, KeyRing, read_ring
from mailwarden.crypto.seal import Seal, key_in
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.event_delivery.model import PURPOSE, Sealed, url_context
from mailwarden.event_delivery.store import ReceiverStore
from mailwarden.feeds.model import SECRET as FEED_SECRET
from mailwarden.feeds.store import FeedStore
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig
from mailwarden.model.scope import Scope
from mailwarden.quarantine.ownership import check_owner
from mailwarden.quarantine.release_token import TOKEN_HOURS
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.settings.reader import read
from mailwarden.settings.shared import Quarantine
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.sealed_contents import SealedContents

ALL = Scope.deployment()
LINK_DAYS = 90  # the maximum of quarantine.digest.linkDays
NAMES = ("contents", "pepper")
# For each key id: the kind of data that needs it, and the number of items.
Uses = Mapping[bytes, Mapping[str, int]]

_REMEDIES = {
    "contents": "Run `mailwarden secrets reencrypt contents` on every host with a vault.",
    "pepper": "Run `mailwarden secrets reencrypt pepper` for authenticators; rotate those API keys "
    "(`mailwarden keys rotate`); users make new recovery codes in the console; setup links end within 72 hours.",
}


class Place(Struct, frozen=True):
    """A secret of this host: its file, and the ciphertexts outside of the database."""

    name: str
    path: Path
    ring: KeyRing
    folder: Path
    quarantine: Quarantine
    link_days: int = LINK_DAYS

    def find(self, named: str) -> Key:
        for key in self.ring.keys:
            if key.name == named:
                return key
        raise CommandError(f"{self.path} has no key `{named}`; `mailwarden secrets list` shows them.")


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = add_action(actions, "list", "show every key and the data that needs it", "mailwarden secrets list")
    listing.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    rotate = add_action(
        actions, "rotate", "add a new key and make it current; old keys stay", "mailwarden secrets rotate contents"
    )
    rotate.add_argument("--standby", action="store_true", help="add it without making it current; see `use`")
    use = add_action(actions, "use", "make an existing key current", "mailwarden secrets use contents KEY")
    reencrypt = add_action(
        actions,
        "reencrypt",
        "encrypt data of other keys again with the current key",
        "mailwarden secrets reencrypt contents",
    )
    drop = add_action(actions, "drop", "remove a key that no data needs", "mailwarden secrets drop contents KEY")
    drop.add_argument(
        "--other-hosts-done", action="store_true",
        help="confirm that `reencrypt` was run on all other hosts with a vault",
    )  # fmt: skip
    for action in (rotate, use, reencrypt, drop):
        action.add_argument("name", choices=NAMES, help="which secret")
    for action in (use, drop):
        action.add_argument("key", metavar="KEY", help="id of the key, as `list` shows it")
    for action in (listing, rotate, use, reencrypt, drop):
        add_database_options(action)


def _run(options: argparse.Namespace) -> int:
    if options.action == "list":
        return _list(options)
    place = next((each for each in _places(options.config) if each.name == options.name), None)
    if place is None:
        raise CommandError(f"{options.config} has no configuration that uses the secret `{options.name}`.")
    actions = {"rotate": _rotate, "use": _use, "reencrypt": _reencrypt, "drop": _drop}
    return actions[options.action](options, place)


def _list(options: argparse.Namespace) -> int:
    places = _places(options.config)
    records = []
    for place in places:
        uses = query_database(options, lambda database, place=place: _uses(place, database))  # type: ignore[misc]
        known = {key.key_id for key in place.ring.keys}
        for number, key in enumerate(place.ring.keys):
            state = "current" if number == 0 else "old" if key.retired else "standby"
            records.append((place.name, key.name, state, key.made, uses.get(key.key_id, {})))
        records += [(place.name, lost.hex(), "MISSING", "", found) for lost, found in uses.items() if lost not in known]
    if options.output == "json":
        names = ("secret", "key", "state", "made", "neededBy")
        print_json([dict(zip(names, record, strict=True)) for record in records])
    else:
        rows = [("SECRET", "KEY", "STATE", "MADE", "NEEDED BY")]
        rows += [(name, key, state, made or "-", _shown(found)) for name, key, state, made, found in records]
        print(table(rows))
    missing = any(state == "MISSING" for _, _, state, _, _ in records)
    if missing:
        print("A key is missing: restore its line from your backup. Until then what needs it cannot be opened.")
    return 1 if missing else 0


def _rotate(options: argparse.Namespace, place: Place) -> int:
    made = new_key()
    if options.standby:
        write_ring(place.path, [*place.ring.keys, made])
        print(f"{place.path}: key {made.name} added. Copy the file to every host that has it, restart abby and guard")
        print(f"there, then run `mailwarden secrets use {place.name} {made.name}` on each.")
        return 0
    write_ring(place.path, [made, *_retired(place.ring.keys[:1]), *place.ring.keys[1:]])
    _print_current(place, made)
    return 0


def _use(options: argparse.Namespace, place: Place) -> int:
    key = place.find(options.key)
    if key is place.ring.current:
        print(f"{key.name} is current already.")
        return 0
    others = [each for each in place.ring.keys if each is not key]
    write_ring(place.path, [structs.replace(key, retired=""), *_retired(others[:1]), *others[1:]])
    _print_current(place, key)
    return 0


def _drop(options: argparse.Namespace, place: Place) -> int:
    key = place.find(options.key)
    if key is place.ring.current:
        raise CommandError(f"{key.name} is the current key. Make another with `mailwarden secrets rotate` first.")
    uses = query_database(options, lambda database: _uses(place, database))
    if needed := uses.get(key.key_id):
        remedy = _REMEDIES[place.name]
        raise CommandError(f"{key.name} is still needed by {_shown(needed)}. {remedy} Nothing was changed.")
    if place.name == "contents":
        _require_no_links(place, key)
        elsewhere = query_database(options, lambda database: _held_elsewhere(place, database))
        if elsewhere and not options.other_hosts_done:
            raise CommandError(
                f"{elsewhere} messages are held in vaults of other hosts, which cannot be read from here. Run "
                "`mailwarden secrets reencrypt contents` there, then add --other-hosts-done. Nothing was changed."
            )
    write_ring(place.path, [each for each in place.ring.keys if each is not key])
    print(f"{place.path}: key {key.name} dropped. Copy the file to every host that has it; restart abby and guard.")
    return 0


def _require_no_links(place: Place, key: Key) -> None:
    """Refuse to remove a key while links and release tokens that it signed may still be valid."""
    if not key.retired:
        return  # it was on standby and never signed
    ends = date.fromisoformat(key.retired) + timedelta(days=max(place.link_days, -(-TOKEN_HOURS // 24)) + 1)
    if datetime.now(UTC).date() < ends:
        raise CommandError(
            f"Links in digests and passes of released messages signed with {key.name} hold until {ends}. "
            "Drop it then. Nothing was changed."
        )


def _reencrypt(options: argparse.Namespace, place: Place) -> int:
    work = _reencrypt_contents if place.name == "contents" else _reencrypt_pepper
    done, failed = query_database(options, lambda database: work(place, database))
    print(f"{_shown(done) if any(done.values()) else 'nothing'} encrypted with the key {place.ring.current.name}")
    for sentence in failed[:20]:
        print(f"not re-encrypted: {sentence}")
    return 1 if failed else 0


async def _reencrypt_contents(place: Place, database: Database) -> tuple[Mapping[str, int], Sequence[str]]:
    """Encrypt with the current key what another `contents` key encrypted.

    The vault must be this deployment's own: its owner could not decrypt what a copy of it encrypts with a key of its
    own.
    """
    failed: list[str] = []
    held = 0
    vault = _vault(place)
    await check_owner(vault, await RetentionStore(database).deployment(ALL))
    with tempfile.TemporaryDirectory() as spool:
        async with aclosing(vault.bodies()) as bodies:
            async for body in bodies:
                try:
                    held += await vault.reencrypt(body.tenant, body.address, Path(spool))
                except BrokenSeal as error:
                    failed.append(f"held message {body.address.hex()[:16]}: {error}")
    trained = await _reencrypt_reports(place, SealedContents(database, "training_reports"), "training report", failed)
    reports = await _reencrypt_reports(place, SealedContents(database, "case_reports"), "report", failed)
    credentials = await _reencrypt_feeds(place, database, failed)
    done = {"held messages": held, "training reports": trained, "reports": reports, "credentials of feeds": credentials}
    return done, failed


async def _reencrypt_reports(place: Place, store: SealedContents, name: str, failed: list[str]) -> int:
    """Seal the messages of reports with the current key; return how many."""
    seal, after, done = ContentsSeal(place.ring), None, 0
    while found := await store.sealed_with_other_keys(ALL, place.ring.current.key_id, after):
        after = found[-1][0]
        for uid, contents in found:
            try:
                renewed = seal.renewed(contents, uid)
            except BrokenSeal as error:
                failed.append(f"{name} {uid}: {error}")
            else:
                done += renewed is not None and await store.replace(ALL, uid, contents, renewed)
    return done


async def _reencrypt_feeds(place: Place, database: Database, failed: list[str]) -> int:
    done, store, seal = 0, FeedStore(database), Seal(place.ring, FEED_SECRET)
    for feed in await store.list(ALL):
        if feed.sealed is None or seal.is_current(feed.sealed):
            continue
        try:
            renewed = seal.close(seal.open(feed.sealed, feed.uid.bytes), feed.uid.bytes)
        except BrokenSeal as error:
            failed.append(f"credential of the feed {feed.name}: {error}")
        else:
            done += await store.reencrypt(feed, renewed)
    return done


async def _reencrypt_pepper(place: Place, database: Database) -> tuple[Mapping[str, int], Sequence[str]]:
    failed: list[str] = []
    store, seal, done = PepperStore(database), Seal(place.ring, CONSOLE_SEAL), 0
    for user_id, sealed in await store.authenticators(ALL, place.ring.current.key_id):
        bound = totp_context(user_id)
        try:
            renewed = seal.close(seal.open(sealed, bound), bound)
        except BrokenSeal as error:
            failed.append(f"authenticator of {user_id}: {error}")
        else:
            done += await store.replace_authenticator(ALL, user_id, sealed, renewed)
    webhooks = await _reencrypt_webhooks(place, database, failed)
    return {"authenticators": done, "secrets of webhooks": webhooks}, failed


async def _reencrypt_webhooks(place: Place, database: Database, failed: list[str]) -> int:
    """Encrypt the secrets and URLs of event receivers again; return how many receivers changed."""
    store, seal, done = ReceiverStore(database), Seal(place.ring, PURPOSE), 0
    for receiver in await store.list(ALL):
        url, old = receiver.sealed_url, [each for each in (receiver.secret, receiver.previous_secret) if each]
        if url is None or all(map(seal.is_current, (url, *old))):
            continue
        bound, url_bound = receiver.uid.bytes, url_context(receiver.uid)
        try:
            secret, *previous = (seal.close(seal.open(each, bound), bound) for each in old)
            plain = seal.open(url, url_bound)
        except BrokenSeal as error:
            failed.append(f"secret of the event receiver {receiver.name}: {error}")
        else:
            renewed = Sealed(secret, seal.close(plain, url_bound))
            done += await store.replace_secrets(ALL, receiver, renewed, previous[0] if previous else None)
    return done


async def _uses(place: Place, database: Database) -> Uses:
    if place.name == "pepper":
        return await PepperStore(database).uses(ALL)
    found: dict[bytes, dict[str, int]] = {}
    vault = _vault(place)
    async with aclosing(vault.bodies()) as bodies:
        async for body in bodies:
            key = await vault.key_of(body.tenant, body.address)
            if key is not None:
                counts = found.setdefault(key, {})
                counts["held messages"] = counts.get("held messages", 0) + 1
    for key, trained in (await SealedContents(database, "training_reports").key_usage(ALL)).items():
        found.setdefault(key, {})["training reports"] = trained
    for feed in await FeedStore(database).list(ALL):
        if feed.sealed is not None:
            counts = found.setdefault(key_in(feed.sealed), {})
            counts["credentials of feeds"] = counts.get("credentials of feeds", 0) + 1
    for key, reports in (await SealedContents(database, "case_reports").key_usage(ALL)).items():
        found.setdefault(key, {})["reports"] = reports
    return found


async def _held_elsewhere(place: Place, database: Database) -> int:
    return await RetentionStore(database).count_in_other_vaults(ALL, await _vault(place).uid())


def _vault(place: Place) -> Vault:
    return open_vault(place.quarantine, place.folder, place.ring)


def _places(folder: Path) -> list[Place]:
    guard = read(folder / GUARD_PATH, GuardConfig) if (folder / GUARD_PATH).exists() else None
    abby = read(folder / ABBY_PATH, AbbyConfig) if (folder / ABBY_PATH).exists() else None
    config = guard or abby
    if config is None:
        raise CommandError(f"{folder} has no configuration of abby or guard.")
    digest = guard.quarantine.digest if guard is not None else None
    days = digest.link_days if digest is not None else LINK_DAYS
    path = folder / config.contents.key
    places = [Place("contents", path, read_ring(path, "contents.key"), folder, config.quarantine, days)]
    if abby is not None:
        path = folder / abby.api_key_pepper
        places.append(Place("pepper", path, read_ring(path, "apiKeyPepper"), folder, abby.quarantine))
    return places


def _retired(keys: Sequence[Key]) -> list[Key]:
    return [structs.replace(key, retired=today()) for key in keys]


def _shown(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in found.items() if count) or "nothing"


def _print_current(place: Place, key: Key) -> None:
    print(f"{place.path}: {key.name} is the current key. Back the file up now, copy it to every host that has it, and")
    print(f"restart abby and guard there. Then: `mailwarden secrets reencrypt {place.name}`.")


COMMAND = Command(
    example="mailwarden secrets rotate contents --config /etc/mailwarden",
    arguments=_arguments,
    run=_run,
)
