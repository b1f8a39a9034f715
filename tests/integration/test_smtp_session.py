"""The scan source `smtp` as a client sees it: what it offers, what it refuses, and that it never waits forever."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.smtp import listener as listener_module
from mailwarden.smtp.listener import SmtpListener
from mailwarden.smtp.session import MAX_ERRORS, Transaction
from mailwarden.telemetry.metrics import Metrics
from tests.integration.recording_source import RecordingSource, open_smtp, run_listener
from tests.integration.smtp_client import SmtpClient
from tests.waiting import eventually

MESSAGE = b"Subject: x\r\n\r\n.a line with a dot\r\n"


async def test_ehlo_lists_the_extensions_that_postfix_uses(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, _):
        lines = (await client.hello()).splitlines()
        assert lines[0] == "250-guard.example"
        assert {line[4:] for line in lines[1:]} == {
            "PIPELINING", "SIZE 52428800", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN",
            "XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE",
        }  # fmt: skip


async def test_messages_come_with_their_envelopes_one_after_the_other(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        assert await client.ask("XFORWARD NAME=mail.pass.example ADDR=192.0.2.10") == "250 2.0.0 Ok"
        assert await client.ask("XFORWARD HELO=mail.pass.example") == "250 2.0.0 Ok"
        assert await client.ask("MAIL FROM:<å@pass.example> BODY=8BITMIME SMTPUTF8 SIZE=100") == "250 2.1.0 Ok"
        assert await client.ask("RCPT TO:<bob@company.example> NOTIFY=NEVER") == "250 2.1.5 Ok"
        assert await client.ask("RCPT TO:<eve@t7.example>") == "250 2.1.5 Ok"
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"
        await client.envelope("")
        assert await client.data(b"Subject: y\r\n\r\n") == "250 2.0.0 Taken"
        assert await client.ask("QUIT") == "221 2.0.0 Bye"
        assert await client.reply() == ""

        (first, raw), (second, _) = source.taken
        assert raw == MESSAGE
        assert first.sender is not None
        assert (first.sender.address, first.sender.utf8, first.sender.eight_bit) == ("å@pass.example", True, True)
        assert (first.forwarded.address, first.forwarded.helo) == ("192.0.2.10", "mail.pass.example")
        assert {uid.int: len(group) for uid, group in first.tenants.items()} == {0: 1, 7: 1}
        assert second.forwarded.address is None, "what was said of one message says nothing of the next"


async def test_commands_may_be_sent_together_up_to_data(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.say(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n")
        assert [await client.reply() for _ in range(3)] == [
            "250 2.1.0 Ok", "250 2.1.5 Ok", "354 End data with <CR><LF>.<CR><LF>",
        ]  # fmt: skip
        await client.say(MESSAGE + b".\r\nMAIL FROM:<>\r\nRSET\r\nQUIT\r\n")
        assert [await client.reply() for _ in range(4)] == [
            "250 2.0.0 Taken", "250 2.1.0 Ok", "250 2.0.0 OK", "221 2.0.0 Bye",
        ]  # fmt: skip
        assert len(source.taken) == 1


async def test_a_client_that_does_not_wait_for_354_loses_the_session(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.say(
            b"MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nRSET\r\nMAIL FROM:<evil@b.example>\r\n"
        )
        replies = [await client.reply() for _ in range(3)]
        assert replies[2].startswith("503 5.5.1")
        assert await client.reply() == "", "and nothing that it said is done"
        assert source.taken == []


@pytest.mark.parametrize("end", [b"\n.\n", b"\r.\r", b"\n.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\r\n.\r\r\n"])
async def test_a_smuggled_message_is_none(tmp_path: Path, end: bytes) -> None:
    hidden = b"MAIL FROM:<evil@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nSubject: smuggled\r\n\r\n.\r\n"
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.envelope()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(b"Subject: x\r\n\r\ntext" + end + hidden + b"QUIT\r\n")
        assert (await client.reply()).startswith("550 5.5.2")
        assert await client.reply() == ""
        assert source.taken == []


async def test_ten_thousand_recipients_are_answered_and_a_thousand_taken(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        assert await client.ask("MAIL FROM:<a@b.example>") == "250 2.1.0 Ok"
        began = time.monotonic()
        replies = []
        for batch in range(100):
            await client.say(b"".join(b"RCPT TO:<r%d@d.example>\r\n" % (batch * 100 + each) for each in range(100)))
            replies += [(await client.reply())[:9] for _ in range(100)]
        assert replies == ["250 2.1.5"] * 1_000 + ["452 4.5.3"] * 9_000
        assert time.monotonic() - began < 15.0
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"
        assert len(source.taken[0][0].recipients) == 1_000


async def test_recipients_of_more_than_twenty_tenants_come_apart(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        await client.ask("MAIL FROM:<a@b.example>")
        replies = [(await client.ask(f"RCPT TO:<a@t{number}.example>"))[:9] for number in range(22)]
        assert replies == ["250 2.1.5"] * 20 + ["452 4.5.3"] * 2
        assert (await client.ask("RCPT TO:<b@t3.example>"))[:3] == "250"


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"A" * 1_000_000, "500 5.5.6"),
        (b"NOOP\nMAIL FROM:<a@b.example>\n", "500 5.5.2"),
        (b"\0\0\0\r\n", "500 5.5.2"),
        (b"MAIL FROM:<a@b.example\rRCPT TO:<c@d.example>\r\n", "500 5.5.2"),
    ],
)
async def test_a_line_that_is_none_ends_the_session(tmp_path: Path, sent: bytes, reply: str) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        await client.say(sent)
        assert (await client.reply())[:9] == reply
        with suppress(ConnectionResetError):  # bytes were left unread, and the kernel says so
            assert await client.reply() == ""


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("MAIL FROM:<a@b.example> RCPT TO:<c@d.example>", "555 5.5.4"),
        ("MAIL FROM:<a@b.example>SIZE=1", "553 5.1.3"),
        ("MAIL FROM:<a@b.example> SIZE=99999999", "552 5.3.4"),
        ("RCPT TO:<c@d.example>", "503 5.5.1"),
        ("DATA", "503 5.5.1"),
        ("XFORWARD HELO=a+0D+0AMAIL", "501 5.5.4"),
        ("AUTH PLAIN AGFsaWNlAHg=", "502 5.5.1"),
        ("STARTTLS", "502 5.5.1"),
        ("VRFY " + "(" * 1_500, "252 2.5.2"),
        ("EXPN all", "502 5.5.1"),
        ("BDAT 10 LAST", "500 5.5.2"),
        ("", "500 5.5.2"),
        ("HELP", "214 2.0.0"),
        ("HELO again.example", "250 guard"),
    ],
)
async def test_every_command_has_its_answer(tmp_path: Path, command: str, reply: str) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        assert (await client.ask(command))[:9] == reply
        assert await client.ask("NOOP") == "250 2.0.0 OK"


async def test_a_client_with_many_errors_is_disconnected(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        replies = [(await client.ask("MAIL nonsense"))[:9] for _ in range(21)]
        assert replies == ["501 5.5.4"] * 20 + ["421 4.7.0"]
        assert await client.reply() == ""


async def test_five_unrecognised_commands_end_the_session(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        assert [(await client.ask("GET / HTTP/1.1"))[:9] for _ in range(5)] == ["500 5.5.2"] * 4 + ["421 4.7.0"]
        assert await client.reply() == ""


async def test_commands_behind_the_last_reply_are_not_executed(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.envelope()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(MESSAGE + b".\r\nQUIT\r\nMAIL FROM:<a@b.example>\r\nRSET\r\n")
        assert await client.reply() == "250 2.0.0 Taken"
        assert await client.reply() == "221 2.0.0 Bye"
        with suppress(ConnectionResetError):  # bytes were left unread, and the kernel says so
            assert await client.reply() == ""
        assert len(source.taken) == 1


@pytest.mark.parametrize("sent", [b"", b"EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n"])
async def test_a_client_that_hangs_up_ends_its_session(tmp_path: Path, sent: bytes) -> None:
    source = RecordingSource(tmp_path)
    metrics = Metrics()
    listener = SmtpListener(source, "guard.example", 1.0, metrics)
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(60.0):
            await reader.read()  # up to the end, which the server makes
        assert source.taken == []
        writer.close()
        await eventually(lambda: b"smtp_sessions 0.0" in metrics.page())
    finally:
        await listener.stop(0.1)


async def test_a_client_that_hangs_up_before_the_reply_cancels_the_analysis(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.envelope()
        source.hold.clear()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(MESSAGE + b".\r\n")
        async with asyncio.timeout(20.0):
            await source.started.wait()
            await client.disconnect()
            await source.cancelled.wait()
        source.hold.set()
        assert source.taken == [], "Postfix still has the message, and sends it again"


async def test_a_client_that_never_reads_is_disconnected(tmp_path: Path) -> None:
    async with open_smtp(tmp_path, command_timeout=300) as (client, _):
        await client.hello()
        async with asyncio.timeout(60.0):  # the buffers of a loopback connection take thousands of replies
            with suppress(ConnectionError):
                while True:
                    await client.say(b"EHLO x\r\n" * 1_000)


async def test_a_slow_client_is_disconnected(tmp_path: Path) -> None:
    async with open_smtp(tmp_path, command_timeout=1_000, data_timeout=1_000) as (client, _):
        await client.hello()
        await client.say(b"NO")
        assert (await client.reply()).startswith("421 4.4.2")
        assert await client.reply() == ""
    async with open_smtp(tmp_path, command_timeout=5_000, data_timeout=300) as (client, source):
        await client.hello()
        await client.envelope()
        await client.ask("DATA")
        for _ in range(3):
            await client.say(b"x")
            await asyncio.sleep(0.05)
        assert (await client.reply()).startswith("421 4.4.2")
        assert await client.reply() == ""
        assert source.taken == []


async def test_a_message_over_the_limit_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    async with open_smtp(tmp_path, max_message_size=100_000) as (client, source):
        await client.hello()
        await client.envelope()
        assert (await client.data(b"x" * 200_000 + b"\r\n")).startswith("552 5.3.4")
        await client.envelope()
        assert (await client.data(b"")).startswith("554 5.6.0")
        await client.envelope()
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"
        assert len(source.taken) == 1


async def test_a_bug_costs_no_message(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, _):
        await client.hello()
        await client.envelope()
        assert (await client.data(b"Subject: bug\r\n\r\n")).startswith("451 4.3.0")
        await client.envelope()
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"


async def test_no_line_of_a_message_is_a_command_after_a_failure_while_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(writer: SpoolWriter, chunk: bytes) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(SpoolWriter, "write", fail)
    smuggled = b"MAIL FROM:<ceo@company.example>\r\nRCPT TO:<b@y.example>\r\nNOOP\r\n"
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.envelope()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(b"Subject: one\r\n\r\n" + smuggled)
        assert (await client.reply()).startswith("421 4.3.0")
        assert await client.reply() == "", "the session has ended"
        assert source.taken == []


async def test_when_full_the_envelope_is_not_even_asked_for(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        source.full = True
        for _ in range(MAX_ERRORS):
            await client.say(b"MAIL FROM:<a@x.example>\r\nRCPT TO:<b@y.example>\r\nDATA\r\n")
            for _ in range(3):
                assert (await client.reply()).startswith("451 4.3.2"), "to what was said at once, and it is no error"
        source.full = False
        await client.envelope()
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"
        assert (await client.ask("RCPT TO:<b@y.example>")).startswith("503"), "it is said of one message alone"


async def test_when_it_became_full_since_mail_the_data_is_not_asked_for(tmp_path: Path) -> None:
    async with open_smtp(tmp_path) as (client, source):
        await client.hello()
        await client.envelope()
        source.full = True
        assert (await client.data(MESSAGE)).startswith("451 4.3.2")
        source.full = False
        await client.envelope()
        assert await client.data(MESSAGE) == "250 2.0.0 Taken"


async def test_only_the_named_networks_may_connect(tmp_path: Path) -> None:
    async with open_smtp(tmp_path, clients=("192.0.2.0/24",)) as (client, _):
        assert await client.reply() == "554 5.7.1 Client not allowed"
        assert await client.reply() == ""


async def test_sessions_beyond_the_limit_get_421(tmp_path: Path) -> None:
    source = RecordingSource(tmp_path, max_connections=2)
    async with (
        run_listener(source) as listener,
        SmtpClient(listener.port) as first,
        SmtpClient(listener.port) as second,
    ):
        await first.hello()
        await second.hello()
        async with SmtpClient(listener.port) as third:
            assert (await third.reply()).startswith("421 4.3.2")
        assert await second.ask("QUIT") == "221 2.0.0 Bye"
        assert await second.reply() == ""
        async with SmtpClient(listener.port) as fourth:
            await fourth.hello()


async def test_a_stop_finishes_open_transactions_and_disconnects_others(tmp_path: Path) -> None:
    source = RecordingSource(tmp_path)
    listener = SmtpListener(source, "guard.example", 1.0, Metrics())
    await listener.start()
    port = listener.port
    async with SmtpClient(port) as idle, SmtpClient(port) as busy:
        await idle.hello()
        await busy.hello()
        source.hold.clear()
        await busy.envelope()
        assert (await busy.ask("DATA")).startswith("354")
        await busy.say(MESSAGE + b".\r\n")
        await source.started.wait()
        stopping = asyncio.create_task(listener.stop(60.0))
        assert (await idle.reply()).startswith("421 4.3.2")
        assert await idle.reply() == ""
        source.hold.set()
        assert await busy.reply() == "250 2.0.0 Taken"
        assert (await busy.reply()).startswith("421 4.3.2")
        async with asyncio.timeout(40.0):  # less than the grace period
            await stopping
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


class SlowToEnd(RecordingSource):
    """Needs time after a cancellation, as for a connection to the database and the row in history."""

    seconds = 0.3

    async def take(self, transaction: Transaction, raw: Spooled) -> str:
        try:
            return await super().take(transaction, raw)
        except asyncio.CancelledError:
            cleaning = asyncio.create_task(asyncio.sleep(self.seconds))
            while not cleaning.done():  # a client that hangs up cancels twice
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(cleaning)
            self.cleaned = True
            raise


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_stop_waits_for_cancelled_sessions(tmp_path: Path, hangs_up: bool) -> None:
    """guard closes its journal afterwards, and a row of the session would be lost."""
    source = SlowToEnd(tmp_path)
    source.cleaned = False
    source.hold.clear()
    listener = SmtpListener(source, "guard.example", 1.0, Metrics())
    await listener.start()
    async with SmtpClient(listener.port) as client, asyncio.timeout(40.0):
        await client.hello()
        await client.envelope()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(MESSAGE + b".\r\n")
        await source.started.wait()
        if hangs_up:
            await client.disconnect()
            await source.cancelled.wait()
        await listener.stop(0.0)
    assert source.cleaned


async def test_a_stop_does_not_wait_for_a_session_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "CANCEL_SECONDS", 0.1)
    source = SlowToEnd(tmp_path)
    source.seconds = 3_600.0
    source.hold.clear()
    listener = SmtpListener(source, "guard.example", 1.0, Metrics())
    await listener.start()
    async with SmtpClient(listener.port) as client, asyncio.timeout(40.0):
        await client.hello()
        await client.envelope()
        assert (await client.ask("DATA")).startswith("354")
        await client.say(MESSAGE + b".\r\n")
        await source.started.wait()
        await listener.stop(0.0)
    assert source.cancelled.is_set()
