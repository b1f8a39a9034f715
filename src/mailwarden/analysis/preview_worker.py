"""The program of a preview process: one message from standard input, its safe preview to standard output, and an end.

Security: holds hostile bytes. It limits its own memory, time and files, dies with its parent, opens no connection.
"""

import ctypes
import resource
import signal
import sys

import msgspec

MEMORY = 768 * 1024 * 1024
CPU_SECONDS = 8
_PR_SET_PDEATHSIG = 1


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    from mailwarden.message.preview import preview_message  # noqa: PLC0415 - after the limits, which it needs

    sys.stdout.buffer.write(msgspec.json.encode(preview_message(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
