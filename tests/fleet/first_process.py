"""The first process of a process namespace: runs one command, and reaps every process that loses its parent."""

import os
import signal
import subprocess
import sys


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles it, and this process ends after it
    command = subprocess.Popen(sys.argv[1:])
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(abs(main()))
