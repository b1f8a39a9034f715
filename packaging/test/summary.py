"""The report of a check of packages, image or chart: one line per check, and the number of failures."""


class Summary:
    """Prints each check as it ends, with the output of a command that failed."""

    def __init__(self, subject: str, prefix: str = "") -> None:
        self.subject = subject
        self.failures = 0
        self._prefix = prefix

    def line(self, text: str, *, well: bool, output: str = "") -> None:
        self.failures += not well
        print(f"{'ok  ' if well else 'FAIL'} {self._prefix}{text}", flush=True)
        if not well and output:
            print(output.rstrip())

    def end(self) -> int:
        """Print the result and return the exit code."""
        print(
            f"{self.subject}: {self.failures} checks failed" if self.failures else f"{self.subject}: all checks passed"
        )
        return 1 if self.failures else 0
