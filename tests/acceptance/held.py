"""Held messages of a deployment, stored as a guard stores them, and results of releases."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace
from ruamel.yaml import YAML

from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.message.urls import host_of
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Ruling, Verdict
from mailwarden.model.record import FinishedRequest, LinkSummary
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.acceptance.deployment import Deployment
from tests.integration.held_messages import RAW, finished

Answer = TypeVar("Answer")
BATCH = 500  # messages that are stored together


def keep(
    deployment: Deployment,
    tenant: str = "acme",
    *,
    raw: bytes = RAW,
    explained: bool = True,
    sentence: str = "A sentence.",
    name: str = "",
    links: tuple[str, ...] = (),
    **changes: Any,
) -> str:
    """Hold a message for that tenant and return its uid; abby and this guard share a folder."""
    made = finished(UUID(deployment.tenants[tenant]), raw=raw, **changes)
    found = tuple(LinkSummary(link, link, host_of(link)) for link in links)
    hosts = tuple(dict.fromkeys(link.host for link in found))
    judgement = replace(made.judgement, summary=sentence)
    summary = replace(made.summary, from_name=name, links=found, url_hosts=hosts)
    request = replace(made, judgement=judgement, summary=summary)

    async def work(database: Database) -> UUID:
        if explained:
            await open_history(database).save(Scope.deployment(), [request])
        return await QuarantineWriter(_vault(deployment), QuarantineStore(database), RetentionDays()).hold(
            request, Spooled.of(raw)
        )

    return str(_run(deployment, work))


def deliver(deployment: Deployment, tenant: str, subjects: Sequence[str]) -> None:
    """Store a delivered message of each subject in history, each from another sender."""
    clean = finished(UUID(deployment.tenants[tenant]), verdict=Verdict.CLEAN)
    clean = replace(clean, ruling=Ruling(Decision.DELIVER, (), ()))

    def made(number: int, subject: str) -> FinishedRequest:
        sender = f"user{number}@sender{number % 400}.example"
        summary = replace(clean.summary, subject=subject, from_address=sender)
        return replace(clean, ggrid=new_ggrid(), envelope=replace(clean.envelope, sender=sender), summary=summary)

    async def work(database: Database) -> None:
        history = open_history(database)
        for first in range(0, len(subjects), BATCH):
            batch = enumerate(subjects[first : first + BATCH], start=first)
            await history.save(Scope.deployment(), [made(number, subject) for number, subject in batch])

    _run(deployment, work)


def finish_releases(deployment: Deployment, failures: Mapping[str, str] | None = None) -> int:
    """Note every release that waits as done, but for those who have a failure; return how many there were."""

    async def work(database: Database) -> int:
        store, count = ReleaseStore(database), 0
        while release := await store.claim(Scope.deployment(), await _vault(deployment).uid(), 900.0):
            wrong = {each: why for each, why in (failures or {}).items() if each in release.recipients}
            await store.record_result(Scope.deployment(), release, wrong)
            count += 1
        return count

    return _run(deployment, work)


def age(deployment: Deployment, uid: str, days: int = 2) -> None:
    """Let a message have come so many days ago."""

    async def work(database: Database) -> None:
        async with database.connection() as connection:
            statement = "UPDATE quarantine SET received = received - make_interval(days => $2) WHERE uid = $1"
            await connection.execute(statement, UUID(uid), days)

    _run(deployment, work)


def state_of(deployment: Deployment, uid: str) -> dict[str, str]:
    """Return what became of the message for each recipient."""
    answer = deployment.client().call("GET", f"/v1/quarantine/{uid}").json
    return {each["address"]: each["state"] for each in answer["recipients"]}


def link_seal(deployment: Deployment) -> DigestLinkSigner:
    """Return what signs the links of digests, with the key of the deployment."""
    return DigestLinkSigner(read_ring((deployment.product.abby.folder / "secrets" / "contents"), "contents.key"))


def _vault(deployment: Deployment) -> Vault:
    folder = deployment.product.abby.folder
    return Vault(FilesystemStore(folder / "quarantine"), read_ring(folder / "secrets" / "contents", "contents.key"))


def _run(deployment: Deployment, work: Callable[[Database], Coroutine[Any, Any, Answer]]) -> Answer:
    async def inside() -> Answer:
        configuration = YAML(typ="safe").load(deployment.product.abby.folder / "abby" / "abby" / "abby.yml")
        database = Database(configuration["database"]["url"], 2)
        try:
            return await work(database)
        finally:
            await database.close()

    with ThreadPoolExecutor(1) as thread:  # a thread of its own has no event loop yet, whatever kind of test asks
        return thread.submit(lambda: asyncio.run(inside())).result()
