"""The servers of the demo on loopback: a sink for outgoing mail, and a name server that knows one name.

All mail that guard delivers ends in the sink: no message of the demo leaves this host.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rrset

HOST = "127.0.0.1"
PROBE = "probe.demo.example"  # the name that guard asks for to see whether its resolver works


@asynccontextmanager
async def loopback_servers(sink_port: int, dns_port: int) -> AsyncIterator[None]:
    """Run both until the block ends."""
    sink = await asyncio.start_server(_take, HOST, sink_port)
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=(HOST, dns_port))
    server.transport = transport
    try:
        yield
    finally:
        transport.close()
        sink.close()


class NameServer(asyncio.DatagramProtocol):
    """Knows the address of PROBE; there is no other name."""

    transport: asyncio.DatagramTransport | None = None

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        if self.transport is not None:
            with suppress(dns.exception.DNSException):
                self.transport.sendto(answer_to(data), addr)


def answer_to(query: bytes) -> bytes:
    asked = dns.message.from_wire(query)
    answer = dns.message.make_response(asked)
    answer.flags |= dns.flags.RA
    if asked.question and str(asked.question[0].name).rstrip(".").lower() == PROBE:
        answer.answer.append(dns.rrset.from_text(f"{PROBE}.", 60, "IN", "A", HOST))
    else:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    return answer.to_wire()


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept every message of one SMTP client (RFC 5321), and forget it."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        writer.write(b"220 sink.demo.example takes everything and delivers nothing\r\n")
        while line := await reader.readline():
            verb = line.strip().upper().split(b" ")[0]
            if verb == b"EHLO":
                writer.write(b"250-sink.demo.example\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-PIPELINING\r\n250 SIZE\r\n")
            elif verb == b"DATA":
                writer.write(b"354 Go ahead\r\n")
                while (await reader.readline()) not in (b".\r\n", b""):
                    pass
                writer.write(b"250 2.0.0 Ok: delivered to nobody\r\n")
            elif verb == b"QUIT":
                writer.write(b"221 2.0.0 Bye\r\n")
                break
            else:
                writer.write(b"250 2.0.0 Ok\r\n")
    writer.close()
