"""Millions of rows of history for measurements: PostgreSQL generates them from random combinations."""

import asyncio
import random
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid5

import asyncpg

from mailwarden.journal.records import encode_plain
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Judgement, Reason, Ruling, Step, Verdict
from mailwarden.model.place import Place
from mailwarden.model.record import FinishedRequest, MessageSummary, PartSummary
from mailwarden.search.terms import term_hash, terms_of
from mailwarden.search.words import LINK, RECIPIENT, SENDER, SUBJECT, lexemes_of

DAYS = 30
SENDERS, RECIPIENTS, SUBJECTS, HOSTS, OUTCOMES = 50_000, 20_000, 20_000, 10_000, 1_000
_NAMESPACE = UUID("6a1f0f0e-0000-4000-8000-000000000000")
TENANTS = {uuid5(_NAMESPACE, name): share for name, share in zip("abcdef", (60, 20, 10, 6, 3, 1), strict=True)}
WORDS = [f"{first}{second}" for first in ("in", "re", "pay", "ship", "meet", "of", "up", "team", "bill", "news")
         for second in ("voice", "port", "ment", "ping", "fer", "date", "ing", "let", "note", "der")]  # fmt: skip
TAGS = ["auth.spf-fail", "auth.dkim-fail", "auth.dmarc-fail", "url.mismatch", "url.shortener", "file.macro",
        "file.archive", "sender.new", "sender.lookalike-domain", "content.hidden-text", "engine.rspamd-high",
        "list.sender-block", "list.sender-allow", "policy.warn", "flow.bulk", "threat.rare"]  # fmt: skip
SHARES = {Verdict.CLEAN: 700, Verdict.BULK: 100, Verdict.SPAM: 100, Verdict.SUSPICIOUS: 40, Verdict.PHISHING: 25,
          Verdict.BLOCKED: 20, Verdict.SPOOF: 8, Verdict.FRAUD: 4, Verdict.MALWARE: 2, Verdict.UNKNOWN: 1}  # fmt: skip
DELIVERED = {Verdict.CLEAN, Verdict.BULK, Verdict.SUSPICIOUS}

_TABLES = """
CREATE UNLOGGED TABLE made_senders (n int, address text, bounce text, name text, ip text, terms bigint[],
                                     words text[]);
CREATE UNLOGGED TABLE made_recipients (n int, address text, tenant uuid, terms bigint[], words text[]);
CREATE UNLOGGED TABLE made_subjects (n int, subject text, terms bigint[], words text[]);
CREATE UNLOGGED TABLE made_hosts (n int, hosts text[], terms bigint[], words text[]);
CREATE UNLOGGED TABLE made_outcomes (
    n int, verdict text, decision text, tags text[], part text, terms bigint[], rest text
);
"""
_DAY = """
CREATE TABLE {name} (LIKE history INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMPRESSION);
INSERT INTO {name} (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
                    subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address, terms,
                    words)
SELECT DATE '{day}', ggrid, r.tenant, moment, moment + duration, 'restApi', 'guard-1', s.bounce, ARRAY[r.address],
       s.address, j.subject, '<' || noise || '@made.example>', sha, o.verdict, o.decision, o.tags, h.hosts,
       convert_to(concat('{{"request":{{"ggrid":"', ggrid, '","tenant":"', r.tenant,
            '","created":"', replace(moment::text, ' ', 'T'),
            ':00","completed":"', replace((moment + duration)::text, ' ', 'T'),
            ':00","source":"restApi","guard":"guard-1","envelope":{{"sender":"', s.bounce, '","recipients":["',
            r.address, '"],"remote_address":"', s.ip, '","helo":"mx.made.example"}},"summary":{{"size":20480,',
            '"sha256":"', sha, '","from_address":"', s.address, '","from_name":"', s.name, '","to":["', r.address,
            '"],"subject":"', j.subject, '","message_id":"<', noise, '@made.example>","parts":[{{"path":"1",',
            '"media_type":"text/html","name":"","size":9000,"sha256":"', o.part, '"}}],"url_hosts":', to_json(h.hosts),
            '}},', o.rest), 'UTF8'),
       s.ip::inet,
       ARRAY[('x' || left(encode(sha256(convert_to('hash:' || sha, 'UTF8')), 'hex'), 16))::bit(64)::bigint]
            || o.terms || r.terms || s.terms || j.terms || h.terms,
       array_to_tsvector(r.words || s.words || j.words || h.words)
FROM (
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7' || left(noise, 3) || 'a'
            || substr(noise, 4, 15))::uuid AS ggrid, encode(sha256(noise::bytea), 'hex') AS sha, drawn.*
    FROM (
        SELECT TIMESTAMPTZ '{day} 00:00:00+00' + n * INTERVAL '{step} microseconds' AS moment,
               md5(n || '{day}') AS noise,
               exp(random() * ln({senders}))::int AS s_n, (random() * ({recipients} - 1))::int AS r_n,
               exp(random() * ln({subjects}))::int AS j_n, exp(random() * ln({hosts}))::int AS h_n,
               (random() * ({outcomes} - 1))::int AS o_n,
               (10 + 30 * exp(random() * 4)) * INTERVAL '1 millisecond' AS duration
        FROM generate_series(0, {rows} - 1) AS n
    ) AS drawn
) AS given
JOIN made_senders s ON s.n = s_n JOIN made_recipients r ON r.n = r_n JOIN made_subjects j ON j.n = j_n
JOIN made_hosts h ON h.n = h_n JOIN made_outcomes o ON o.n = o_n
ORDER BY moment;
"""
_INDEXES = """
ALTER TABLE {name} ADD PRIMARY KEY (day, ggrid, tenant);
CREATE INDEX ON {name} USING gin (terms);
CREATE INDEX ON {name} USING gin (words);
"""


async def build_history(url: str, rows: int, days: int = DAYS, connections: int = 2) -> None:
    """Fill the history of a migrated database with `rows` rows over the last `days` days."""
    async with asyncpg.create_pool(url, min_size=1, max_size=connections, command_timeout=600) as pool:
        async with pool.acquire() as connection:
            await _make_pieces(connection)
        today = datetime.now(UTC).date()
        waiting = [today - timedelta(days=back) for back in range(days)]

        async def work() -> None:
            while waiting:
                day = waiting.pop(0)
                async with pool.acquire() as connection:
                    await _make_day(connection, day, rows // days)

        await asyncio.gather(*(work() for _ in range(connections)))
        async with pool.acquire() as connection:
            for day in (today - timedelta(days=back) for back in range(days)):
                end = day + timedelta(days=1)
                name = f"history_{day:%Y%m%d}"
                await connection.execute(
                    f"ALTER TABLE history ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{end}')"
                )


def sender(number: int) -> tuple[str, str, str]:
    """Return the address, the domain and the client IP of a sender."""
    domain = f"mail.company{number % 9_000}.example"
    return f"person{number}@{domain}", domain, f"10.{number % 199}.{number % 251}.{number % 241}"


def subject(number: int) -> str:
    chosen = random.Random(number)
    return " ".join([*(chosen.choice(WORDS) for _ in range(4)), f"case{number}"])


def host(number: int) -> str:
    return f"www.site{number % 5_000}.host{number}.example"


async def _make_pieces(connection: asyncpg.Connection) -> None:
    await connection.execute(_TABLES)
    chosen = random.Random(4)
    senders, recipients, hosts = [], [], []
    for number in range(SENDERS + 1):
        address, _, ip = sender(number)
        bounce, name = f"bounce{number % 50}@{address.partition('@')[2]}", f"Person {number % 700}"
        request = make_request(sender=address, ip=ip, name=name, bounce=bounce)
        found, words = _terms(request, "from", "ip", "name"), _words(request, SENDER)
        senders.append((number, address, bounce, name, ip, found, words))
    tenants = [tenant for tenant, share in TENANTS.items() for _ in range(share)]
    for number in range(RECIPIENTS):
        tenant = tenants[number * 100 // RECIPIENTS]
        address = f"user{number}@tenant{tenants.index(tenant)}.example"
        request = make_request(to=address, tenant=tenant)
        recipients.append((number, address, tenant, _terms(request, "to", "tenant"), _words(request, RECIPIENT, "@")))
    subjects = []
    for number in range(SUBJECTS + 1):
        request = make_request(subject=subject(number))
        subjects.append((number, subject(number), _terms(request, "subject"), _words(request, SUBJECT)))
    for number in range(HOSTS + 1):
        names = tuple(host(number + extra) for extra in range(chosen.choice((0, 1, 1, 2, 4))))
        request = make_request(hosts=names)
        hosts.append((number, list(names), _terms(request, "url"), _words(request, LINK)))
    verdicts = [verdict for verdict, share in SHARES.items() for _ in range(share)]
    outcomes = [(number, *_outcome(number, verdict, chosen)) for number, verdict in enumerate(verdicts)]
    for name, rows in {"senders": senders, "recipients": recipients, "subjects": subjects, "hosts": hosts,
                       "outcomes": outcomes}.items():  # fmt: skip
        await connection.copy_records_to_table(f"made_{name}", records=rows)
        await connection.execute(f"ANALYZE made_{name}")


def _outcome(number: int, verdict: Verdict, chosen: random.Random) -> tuple[str, str, list[str], str, list[int], str]:
    tags = tuple(sorted(set(chosen.choices(TAGS[:-1], k=chosen.randint(0, 4))))) + (
        ("threat.rare",) if number == 999 else ()
    )
    decision = Decision.DELIVER if verdict in DELIVERED else Decision.QUARANTINE
    decision = Decision.UNDECIDED if verdict is Verdict.UNKNOWN else decision
    part = f"{chosen.getrandbits(256):064x}"
    request = make_request(verdict=verdict, decision=decision, tags=tags, part=part)
    rest = encode_plain(request).decode().partition('"evidence":')[2]
    return (
        verdict,
        decision,
        list(tags),
        part,
        _terms(request, "verdict", "decision", "tag", "hash", part=part),
        '"evidence":' + rest,
    )


def _terms(request: FinishedRequest, *operators: str, part: str = "") -> list[int]:
    wanted = [term for term in terms_of(request) if term.partition(":")[0] in operators]
    return [term_hash(term) for term in wanted if not term.startswith("hash:") or part in term]


def _words(request: FinishedRequest, *fields: str) -> list[str]:
    return [lexeme for lexeme in lexemes_of(request) if lexeme.startswith(fields)]


def make_request(
    *, sender: str = "", bounce: str = "", ip: str = "", name: str = "", to: str = "", tenant: UUID = _NAMESPACE,
    subject: str = "", hosts: tuple[str, ...] = (), verdict: Verdict = Verdict.CLEAN,
    decision: Decision = Decision.DELIVER, tags: tuple[str, ...] = (), part: str = "",
) -> FinishedRequest:  # fmt: skip
    now = datetime.now(UTC)
    reasons = tuple(
        Reason(
            tag.partition(".")[2],
            tag.partition(".")[0],
            verdict,
            20,
            f"Something speaks for {tag}.",
            Place(part="1"),
            tag,
        )
        for tag in tags
    )
    findings = tuple(Finding(f"rspamd.SYMBOL_{number}", facts={"score": 0.1 * number}) for number in range(12))
    reports = tuple(
        Report(analyzer, True, Status.FINISHED, 1.5, findings if analyzer == "rspamd" else ())
        for analyzer in ("structure", "attachments", "html", "rspamd", "clamav", "authentication")
    )
    return FinishedRequest(
        ggrid=new_ggrid(), tenant=tenant, created=now, completed=now, source="restApi", guard="guard-1",
        envelope=Envelope(bounce, (to,) if to else (), ip or None),
        summary=MessageSummary(1, "", from_address=sender, from_name=name, subject=subject, url_hosts=hosts,
                               parts=(PartSummary("1", "text/html", "", 1, part),) if part else ()),
        evidence=Evidence(reports), judgement=Judgement(verdict, f"This is {verdict}.", reasons, {verdict: 20}, tags),
        ruling=Ruling(decision, (), (Step("default", decision),)),
    )  # fmt: skip


async def _make_day(connection: asyncpg.Connection, day: date, rows: int) -> None:
    name = f"history_{day:%Y%m%d}"
    await connection.execute(
        "SET maintenance_work_mem = '256MB'; SET work_mem = '64MB'; SET synchronous_commit = off; SET timezone = 'UTC'"
    )
    sizes = {"senders": SENDERS, "recipients": RECIPIENTS, "subjects": SUBJECTS, "hosts": HOSTS, "outcomes": OUTCOMES}
    step = 86_400_000_000 // max(rows, 1)
    await connection.execute(_DAY.format(name=name, day=day, rows=rows, step=step, **sizes))
    await connection.execute(_INDEXES.format(name=name))
    await connection.execute(f"VACUUM ANALYZE {name}")
