"""Plain answers of a resolver are read as dnspython reads them; all others are left to dnspython."""

import asyncio
import socket

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from mailwarden.engines.dns import DnsEngine, DnsSettings, Outcome
from mailwarden.engines.dns_query import Reply, exchange, make_question, read_reply

NAME = "_dmarc.company.example"
TEXT = '"v=DMARC1; p=reject" "; ruf=mailto:a@company.example"'


def answer_to(wire, *records, code=dns.rcode.NOERROR, flags=0):
    """Return the answer of a server: records of (name, type, values...)."""
    reply = dns.message.make_response(dns.message.from_wire(wire))
    reply.set_rcode(code)
    reply.flags |= flags
    for name, kind, *values in records:
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", kind, *values))
    return reply.to_wire()


def replied(kind, *records, **changes):
    question = make_question(NAME, kind)
    return read_reply(answer_to(b"\0\1" + question.wire, *records, **changes), question)


CHAIN = (f"{NAME}.", "CNAME", "policy.other.example.")


@pytest.mark.parametrize(
    ("kind", "records", "expected"),
    [
        ("A", [(f"{NAME}.", "A", "192.0.2.1", "192.0.2.2")], ("192.0.2.1", "192.0.2.2")),
        ("NS", [(f"{NAME}.", "NS", "a.example.")], ("",)),
        ("TXT", [(f"{NAME}.", "TXT", TEXT)], ("v=DMARC1; p=reject; ruf=mailto:a@company.example",)),
        ("TXT", [CHAIN, ("policy.other.example.", "TXT", '"v=DMARC1"', '"x"')], ("v=DMARC1", "x")),
        ("TXT", [CHAIN], ()),
        ("A", [], ()),
    ],
)
def test_the_records_of_the_wanted_type_are_read(kind, records, expected):
    found = replied(kind, *records)
    assert found is not None
    assert (found.code, sorted(found.records)) == (0, sorted(expected))


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.NXDOMAIN, dns.rcode.REFUSED])
def test_the_response_code_is_read(code):
    assert replied("A", code=code) == Reply(int(code), ())


def test_a_truncated_answer_is_left_to_dnspython():
    assert replied("TXT", (f"{NAME}.", "TXT", TEXT), flags=dns.flags.TC) is None


def test_an_answer_to_another_question_is_left_to_dnspython():
    question, other = make_question(NAME, "TXT"), make_question("_dmarc.another.example", "TXT")
    assert read_reply(answer_to(b"\0\1" + other.wire, (f"{NAME}.", "TXT", TEXT)), question) is None
    assert read_reply(b"\0\1" + question.wire, question) is None, "a question is no answer"


@pytest.mark.parametrize("kind", ["A", "TXT"])
def test_no_cut_answer_has_a_record_less_and_none_raises(kind):
    question = make_question(NAME, kind)
    values = ("192.0.2.1", "192.0.2.2") if kind == "A" else (TEXT, '"x"')
    whole = answer_to(b"\0\1" + question.wire, (f"{NAME}.", kind, *values))
    assert read_reply(whole, question) is not None
    for end in range(len(whole)):
        assert read_reply(whole[:end], question) is None


def test_damaged_answers_never_raise():
    question = make_question(NAME, "TXT")
    whole = answer_to(b"\0\1" + question.wire, (f"{NAME}.", "TXT", TEXT))
    for place in range(len(whole)):
        for value in (0, 1, 0x3F, 0xC0, 0xFF):
            read_reply(whole[:place] + bytes([value]) + whole[place + 1 :], question)


@pytest.mark.parametrize("name", ["a..b", "x" * 64 + ".example", "\udcff.example"])
def test_a_name_that_cannot_exist_is_an_error(name):
    with pytest.raises((dns.exception.DNSException, UnicodeError)):
        make_question(name, "A")


class Server(asyncio.DatagramProtocol):
    """A server on loopback that sends what `reply` returns for a question."""

    def __init__(self, reply):
        self.reply = reply
        self.asked = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, sender):
        self.asked.append((data[:2], sender[1]))
        for each in self.reply(data):
            self.transport.sendto(each, sender)


@pytest.fixture
async def serve():
    opened = []

    async def start(reply):
        server = Server(reply)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
        opened.append(transport)
        return server, transport.get_extra_info("sockname")[1]

    yield start
    for transport in opened:
        transport.close()


async def test_an_answer_with_another_id_is_ignored(serve):
    question = make_question(NAME, "A")
    right = (f"{NAME}.", "A", "192.0.2.1")

    def reply(data):
        forged = bytes(each ^ 0xFF for each in data[:2]) + data[2:]
        return answer_to(forged, right, right), answer_to(data, right)

    server, port = await serve(reply)
    answer = await exchange("127.0.0.1", port, question)
    assert answer[:2] == server.asked[0][0]
    assert read_reply(answer, question) == Reply(0, ("192.0.2.1",))


async def test_each_question_has_its_own_id_and_port(serve):
    server, port = await serve(lambda data: [answer_to(data)])
    for _ in range(8):
        await exchange("127.0.0.1", port, make_question(NAME, "A"))
    assert len({asked for asked, _ in server.asked}) > 4
    assert len({source for _, source in server.asked}) > 4


def engine(port, timeout=300):
    return DnsEngine("dns", DnsSettings((f"127.0.0.1:{port}",), timeout, NAME))


async def test_a_truncated_answer_is_asked_again_over_tcp(serve):
    server, port = await serve(lambda data: [answer_to(data, flags=dns.flags.TC)])

    async def over_tcp(reader, writer):
        data = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        whole = answer_to(data, (f"{NAME}.", "TXT", TEXT))
        writer.write(len(whole).to_bytes(2) + whole)
        await writer.drain()
        writer.close()

    tcp = await asyncio.start_server(over_tcp, "127.0.0.1", port)
    async with tcp:
        found = await engine(port, 5_000)._ask(NAME, "TXT")
    assert (found.outcome, found.records[0][:8], len(server.asked)) == (Outcome.FOUND, "v=DMARC1", 2)


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (lambda data: [], "did not answer within 300 ms"),
        (lambda data: [answer_to(data, code=dns.rcode.SERVFAIL)], "answers SERVFAIL"),
        (lambda data: [data[:2] + b"nonsense"], "127.0.0.1"),
    ],
)
async def test_a_server_without_a_usable_answer_has_failed(serve, reply, sentence):
    _, port = await serve(reply)
    found = await engine(port)._ask(NAME, "A")
    assert found.outcome is Outcome.FAILED
    assert sentence in found.sentence


async def test_a_server_that_is_down_has_failed():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    found = await engine(port)._ask(NAME, "A")
    assert found.outcome is Outcome.FAILED
