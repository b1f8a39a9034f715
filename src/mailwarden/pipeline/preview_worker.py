"""The program of a preview process: one message from standard input, its safe preview to standard output, and an end.

Security: holds hostile bytes. It limits its own memory, time and files, dies with its parent and enters the sandbox
before it reads the message (`pipeline/sandbox.py`).
"""

import sys

import msgspec

from mailwarden.pipeline.sandbox import REQUIRED, SandboxUnavailable, enter_sandbox, limit_resources

MEMORY = 768 * 1024 * 1024
CPU_SECONDS = 8
NO_SANDBOX = 3  # the exit code of a process that cannot enter the sandbox


def main() -> None:
    limit_resources(MEMORY, CPU_SECONDS)
    from mailwarden.message.preview import preview_message  # noqa: PLC0415 - after the limits, which it needs

    if sys.argv[1] == REQUIRED:
        try:
            enter_sandbox()
        except SandboxUnavailable as error:
            sys.stdout.write(str(error))
            sys.exit(NO_SANDBOX)
    sys.stdout.buffer.write(msgspec.json.encode(preview_message(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
