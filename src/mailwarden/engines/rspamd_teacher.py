"""Trains Rspamd: its controller learns a message for one classifier, and its statistics forget a classifier.

Security: the controller's password passes through here, in a header to an address of the configuration.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import RedisError

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.engine import CLASSIFIER_HEADER, EngineConnection
from mailwarden.model.evidence import FailureKind

MAX_ANSWER = 65_536  # not inspection: an engine's own answer
AT_ONCE = 2
ANSWER_TIMEOUT = 10.0  # seconds, for one message
BATCH = 1_000
REPLICA_MILLISECONDS = 2_000
REDIS_SECONDS, CONNECT_SECONDS = 5.0, 2.0
NAMESPACE = "RS"  # prefix of the keys of Rspamd's classifier
_REGISTER = "RS_keys"
_ROOM = "mailwarden-room"
_NOW, _BEFORE = 200, 208  # learned now, or a text that Rspamd has learned before
MAX_DOUBTS = 1_000  # not inspection: training messages to remember
_REFUSED = frozenset({204, 400, 404, 413})  # too little text above all; waiting would not make a message better


def _sentinel(addresses: Sequence[str]) -> Sentinel | None:
    if not addresses:
        return None
    split = [address.rpartition(":") for address in addresses]
    times = {"socket_timeout": CONNECT_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
    servers = [(host.strip("[]"), int(port)) for host, _, port in split]
    return Sentinel(servers, sentinel_kwargs=times)  # type: ignore[no-untyped-call]


def _open(url: str, sentinel: Sentinel | None, service: str) -> Redis:
    """Return a client of the URL, or of the master that the sentinels name; the URL then has its login alone."""
    if sentinel is None:
        return Redis.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=CONNECT_SECONDS)
    given = parse_url(url)
    found: Redis = sentinel.master_for(
        service,
        db=given.get("db", 0),
        username=given.get("username"),
        password=given.get("password"),
        socket_timeout=REDIS_SECONDS,
        socket_connect_timeout=CONNECT_SECONDS,
    )
    return found


@dataclass(slots=True)
class _Doubt:
    """A message that was sent and not confirmed, and how many messages its classifier would have without it."""

    classifier: str
    threat: bool
    without: int


class _Doubts:
    """Remembers messages that were sent and not confirmed, the latest ones.

    Rspamd notes the text of a message in Redis apart from its statistics. In a failover one of the two writes can
    fail: Rspamd then knows a text that it has not learned, and answers 208 to it.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, _Doubt] = {}

    def begin(self, key: bytes, doubt: _Doubt) -> _Doubt | None:
        """Remember a message that is being sent; return what was remembered of it before."""
        earlier = self._kept.get(key)
        if earlier is None:
            while len(self._kept) >= MAX_DOUBTS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = doubt
        return earlier

    def end(self, key: bytes, *, learned: bool) -> None:
        """Forget a message with a certain result; one that was learned counts for the others of its classifier."""
        ended = self._kept.pop(key, None)
        if ended is None or not learned:
            return
        for each in self._kept.values():
            if (each.classifier, each.threat) == (ended.classifier, ended.threat):
                each.without += 1


class RspamdTeacher:
    """Rspamd's controller, which adds to the statistics, and its Redis, from which a classifier is removed."""

    def __init__(
        self, controller: str, password: str, redis: str, sentinels: Sequence[str] = (), service: str = ""
    ) -> None:
        self._connection = EngineConnection("Rspamd's controller", controller, AT_ONCE)
        self._password = password
        self._sentinel = _sentinel(sentinels)
        self._redis = _open(redis, self._sentinel, service)
        self._doubts = _Doubts()

    async def teach(self, message: bytes, classifier: str, *, threat: bool, alone: bool = True) -> bool:
        """Train Rspamd with a message; return False if Rspamd rejects it, mostly because it has too little text.

        If Rspamd learns another message before and after it fails at this one again, the message is at fault and must
        not delay the others. Once before is not enough: a failover of Redis may fall between the two. With
        `alone=False` others train the same classifier at the same time, and this raises on failure.
        """
        try:
            return await self._teach(message, classifier, threat=threat, counts=alone)
        except EngineFailed:
            if not alone:
                raise
            await self.check()
        try:
            return await self._teach(message, classifier, threat=threat, counts=True)
        except EngineFailed as error:
            if error.kind is FailureKind.UNREACHABLE:
                raise
            await self.check()
            return False

    async def _teach(self, message: bytes, classifier: str, *, threat: bool, counts: bool) -> bool:
        """Train Rspamd with a message, and check the count in Redis.

        Rspamd reports success even if its Redis is full or read-only, and for messages that it skips, such as those
        with the test text for spam filters.
        """
        await self._require_replica()  # without one Redis rejects the training message, and Rspamd would hide that
        if not counts:
            status, reason = await self._ask(message, classifier, threat=threat)
            return await self._conclude(status, reason)
        before = await self._count(classifier, threat=threat)
        key = sha256(f"{classifier} {threat} ".encode() + message).digest()
        earlier = self._doubts.begin(key, _Doubt(classifier, threat, before))
        if earlier is not None and before > earlier.without:
            status, reason = _NOW, ""  # the training message that was not confirmed is there
        else:
            status, reason = await self._ask(message, classifier, threat=threat)
            if status == _BEFORE and earlier is not None:
                status, reason = await self._ask(_with_new_id(message), classifier, threat=threat)
            if status == _NOW and await self._count(classifier, threat=threat) <= before:
                raise EngineFailed(
                    FailureKind.UNFINISHED, "Rspamd accepted a message for training and wrote nothing into Redis."
                )
        learned = await self._conclude(status, reason)
        self._doubts.end(key, learned=learned and status == _NOW)
        return learned

    async def _conclude(self, status: int, reason: str) -> bool:
        """Return whether a message was learned, and is on a replica; raise EngineFailed if that is not certain."""
        if status in (_NOW, _BEFORE):
            await self._require_replica()
            return True
        if status in _REFUSED:
            return False
        raise EngineFailed(
            FailureKind.UNFINISHED, f"Rspamd's controller answered {status} {reason!r} to a training request."
        )

    async def _ask(self, message: bytes, classifier: str, *, threat: bool) -> tuple[int, str]:
        question = (self._head(message, classifier, threat=threat), message)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                answer = await self._connection.ask(question, MAX_ANSWER)
        except TimeoutError:
            sentence = f"Rspamd's controller did not answer within {ANSWER_TIMEOUT:.0f} s."
            raise EngineFailed(FailureKind.TIMEOUT, sentence) from None
        return status_of(answer)

    async def check(self) -> None:
        """Raise EngineFailed if Rspamd does not keep classifiers apart, before one tenant's mail teaches another's."""
        await self._require_room()
        probe = f"probe-{uuid4().hex}"
        await self.teach(_probe(), probe, threat=False, alone=False)
        if not await self._knows(probe):
            raise EngineFailed(
                FailureKind.UNFINISHED,
                "Rspamd does not keep statistics of each classifier apart, or not in this Redis: "
                "put deploy/rspamd/classifier-bayes.conf into its local.d, "
                "and compare `redis` under `training` in guard.yml with its redis.conf.",
            )
        await self.forget(probe)

    async def forget(self, classifier: str) -> int:
        """Remove all that was learned for a classifier; return how many keys went."""
        name = f"{NAMESPACE}{classifier}"
        gone = 0
        try:
            batch: list[bytes] = [name.encode()]
            async for key in self._redis.scan_iter(match=f"{name}_*", count=BATCH):
                batch.append(key)
                if len(batch) >= BATCH:
                    gone += await self._remove(batch)
                    batch = []
            gone += await self._remove(batch)
            await self._redis.srem(_REGISTER, name)
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, f"Redis did not forget {classifier}: {error}.") from error
        return gone

    async def check_controller(self) -> str:
        """Return what the controller calls itself, if it lets us teach."""
        head = f"GET /auth HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\nPassword: {self._password}\r\n\r\n"
        status, reason = status_of(await self._connection.probe(head.encode()))
        if status in (401, 403):
            raise EngineFailed(FailureKind.UNFINISHED, "Rspamd's controller does not take the password.")
        if status != 200:
            raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd's controller answered {status} {reason!r}.")
        return "Rspamd's controller"

    async def check_redis(self) -> str:
        """Return what Redis calls itself."""
        try:
            found = await self._redis.info("server")
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, f"Redis does not answer: {error}.") from error
        return f"Redis {found['redis_version']}"

    async def close(self) -> None:
        await self._redis.aclose()
        for each in self._sentinel.sentinels if self._sentinel else ():
            await each.aclose()

    async def _require_replica(self) -> None:
        """Check that a replica has all writes up to now: the training message then survives a failover.

        A replica applies writes in their order, so one that has ours has those of Rspamd before it.
        """
        if self._sentinel is None:
            return
        try:
            async with self._redis.client() as single:  # WAIT is about the writes of its own connection
                await single.set(_ROOM, b"", ex=60)
                replicas = int(await single.wait(1, REPLICA_MILLISECONDS))
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, "Redis did not answer.", str(error)) from error
        if not replicas:
            # An outage: neither the message nor Rspamd is at fault.
            raise EngineFailed(
                FailureKind.UNREACHABLE, "No replica of Redis has the training message: it is repeated later."
            )

    async def _require_room(self) -> None:
        """Check that Redis accepts a write; a missing key in a full Redis proves nothing about Rspamd."""
        try:
            await self._redis.set(_ROOM, b"", ex=60)
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, f"Redis takes nothing more: {error}.") from error

    async def _knows(self, classifier: str) -> bool:
        try:
            return bool(await self._redis.exists(f"{NAMESPACE}{classifier}"))
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, "Redis did not answer.", str(error)) from error

    async def _count(self, classifier: str, *, threat: bool) -> int:
        """Return how many messages of one side were learned for a classifier."""
        try:
            kept = await self._redis.hget(f"{NAMESPACE}{classifier}", "learns_spam" if threat else "learns_ham")
        except RedisError as error:
            raise EngineFailed(FailureKind.UNREACHABLE, "Redis did not answer.", str(error)) from error
        return int(kept or 0)

    async def _remove(self, keys: Iterable[bytes]) -> int:
        return int(await self._redis.unlink(*keys))

    def _head(self, message: bytes, classifier: str, *, threat: bool) -> bytes:
        path = "/learnspam" if threat else "/learnham"
        return (
            f"POST {path} HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\nContent-Length: {len(message)}\r\n"
            # In bulk every report is learned, so the result does not depend on their order.
            f"Learn-Type: bulk\r\nPassword: {self._password}\r\n{CLASSIFIER_HEADER}: {classifier}\r\n\r\n"
        ).encode()


def _probe() -> bytes:
    """Write a message of words that no other has."""
    words = " ".join(uuid4().hex for _ in range(40))
    return f"From: probe@mailwarden.example\r\nSubject: probe\r\n\r\n{words}\r\n".encode()


def _with_new_id(message: bytes) -> bytes:
    """Return the message with a field that Rspamd learns as well, so that it does not know the text."""
    return f"X-MimeOLE: {uuid4().hex}\r\n".encode() + message


def status_of(answer: bytes) -> tuple[int, str]:
    """Return status and reason of an HTTP answer, or raise EngineFailed if it is none."""
    _, _, rest = answer.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    status, _, reason = rest.partition(" ")
    if not status.isdigit():
        raise EngineFailed(FailureKind.UNFINISHED, "Rspamd's controller closed the connection without an answer.")
    return int(status), reason[:200]  # shown: the engine's reply
