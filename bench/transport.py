"""`make bench-transport`: the CPU of one message between abby and guard, by HTTPS and by frames, in one run.

The analysis is left out: guard answers at once. Both sides are one process each, and rounds alternate.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench.cpu import Processes, cpu_seconds
from mailwarden.abby.guard_client import submission_of
from mailwarden.abby.guard_frames import FramesTransport, open_connections
from mailwarden.abby.guard_http import HttpTransport, open_session
from mailwarden.abby.guard_transport import ScanRequest, Transport
from mailwarden.analysis.pipeline.examination import Observer
from mailwarden.guard.processing import GuardRequest
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Judgement, Ruling, Verdict
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.uploads import Keep, Upload, UploadReceiver
from mailwarden.telemetry.logs import start_logging
from mailwarden.telemetry.memory import tune_gc
from mailwarden.telemetry.metrics import Metrics
from rig.stand_in_guard import abby_context, make_stand_in_certificates, stand_in_guard

CONCURRENCY = 20
SIZES = {"5k": 5_000, "50k": 50_000, "1m": 1_000_000, "10m": 10_000_000}
ENVELOPE = Envelope("ann@sender.example", ("bob@acme.example",), "192.0.2.7", "mx.sender.example")
GROUPS = (RecipientGroup(Assignment(new_ggrid(), AssignedBy.DOMAINS), ENVELOPE.recipients),)
PARAMETERS = (
    b'{"borderMtaData":{"envelopeFrom":"ann@sender.example","envelopeRecipients":["bob@acme.example"],'
    b'"remoteAddress":"192.0.2.7","senderHelo":"mx.sender.example"}}'
)
HEAD = b'--b\r\nContent-Disposition: form-data; name="parameters"\r\nContent-Type: application/json\r\n\r\n'
MIDDLE = b'\r\n--b\r\nContent-Disposition: form-data; name="email"\r\n\r\n'


async def answer(request: GuardRequest, _: Observer) -> FinishedRequest:
    now = datetime.now(UTC)
    return FinishedRequest(
        ggrid=request.ggrid,
        tenant=request.groups[0].tenant,
        created=now,
        completed=now,
        source=request.source,
        guard="bench",
        envelope=request.envelope,
        summary=MessageSummary(request.raw.size, ""),
        evidence=Evidence(()),
        judgement=Judgement(Verdict.CLEAN, "", (), {}, ("auth.spf-pass", "auth.dkim-pass")),
        ruling=Ruling(Decision.DELIVER, (), ()),
    )


async def serve(folder: Path) -> None:
    async with stand_in_guard(folder, folder, answer) as guard:
        guard.processing.keep = False
        tune_gc()
        print(guard.port, flush=True)
        await asyncio.Event().wait()


async def upload_of(size: int, folder: Path) -> Upload:
    line = b"The quick brown fox jumps over the lazy dog, and nobody pays for it.\r\n"
    message = b"Subject: x\r\n\r\n" + line * (size // len(line))
    receiver = UploadReceiver("b", folder, Keep.BODY)
    for start in range(0, len(message), 262_144):
        head = HEAD + PARAMETERS + MIDDLE if not start else b""
        await receiver.take(head + message[start : start + 262_144])
    await receiver.take(b"\r\n--b--\r\n")
    return await receiver.finish("multipart/form-data; boundary=b")


async def run(transport: Transport, upload: Upload, count: int) -> None:
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            request = ScanRequest(new_ggrid(), ENVELOPE, GROUPS, "0123456789abcdef")
            deadline = asyncio.get_running_loop().time() + 60
            async with asyncio.timeout_at(deadline):
                await transport.submit(submission_of(upload), request, deadline, "")

    await asyncio.gather(*(client() for _ in range(CONCURRENCY)))


async def measure(folder: Path, port: int, guard_pid: int, rounds: int, seconds_of: float, sizes: list[str]) -> None:
    processes = Processes({"abby": os.getpid(), "guard": guard_pid}, {})
    address = f"https://127.0.0.1:{port}"
    async with (
        open_session(abby_context(folder)) as session,
        open_connections([address], abby_context(folder, frames=True), Metrics()) as connections,
    ):
        http = HttpTransport(session, address)
        while connections[address].best() is None:
            await asyncio.sleep(0.05)
        ways: dict[str, Transport] = {"https": http, "frames": FramesTransport(http, connections[address])}
        tune_gc()
        for name in sizes:
            size = SIZES[name]
            upload = await upload_of(size, folder)
            count = max(40, int(seconds_of * 30_000_000 / (size + 20_000)))
            used: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
            for turn in range(rounds + 1):
                for way, transport in ways.items():
                    before = cpu_seconds(processes)
                    await run(transport, upload, count)
                    after = cpu_seconds(processes)
                    if turn:  # the first round warms up
                        used[way].append({who: (after[who] - before[who]) * 1e6 / count for who in after})
            upload.close()
            for way, each in used.items():
                abby, guard = (statistics.median(one[who] for one in each) for who in ("abby", "guard"))
                both = sorted(sum(one.values()) for one in each)
                spread = f"{both[0]:.0f}-{both[-1]:.0f}"
                print(
                    f"{name:>4} {way:>7}: abby {abby:7.0f}  guard {guard:7.0f}  both {abby + guard:7.0f} us ({spread})"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="about the length of a round (default: %(default)s)")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES), help="(default: all)")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    start_logging("abby", "warning")
    if arguments.serve:
        uvloop.run(serve(arguments.serve))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = make_stand_in_certificates(Path(name))
        command = [sys.executable, "-m", "bench.transport", "--serve", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as guard:
            assert guard.stdout is not None
            try:
                port = int(guard.stdout.readline())
                print(f"{CONCURRENCY} at once, {arguments.rounds} rounds, CPU microseconds a message, median (spread)")
                uvloop.run(measure(folder, port, guard.pid, arguments.rounds, arguments.seconds, arguments.sizes))
            finally:
                guard.terminate()


if __name__ == "__main__":
    main()
