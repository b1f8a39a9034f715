"""Sends one message to Postfix on this host until it is answered with 250; runs inside the booted root."""

import smtplib
import sys
import time
from email.message import EmailMessage

SECONDS = 240
EICAR = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
YARA_MARKER = "mailwarden yara example 7f3a9c"  # of /usr/share/mailwarden/yara


def message(kind: str) -> EmailMessage:
    made = EmailMessage()
    made["From"] = "Partner <anna@partner.example>"
    made["To"] = "alice@company.example"
    made["Subject"] = f"Package test {kind}"
    made["Message-ID"] = f"<{time.time_ns()}@partner.example>"
    made["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())
    made.set_content(
        f"Hello Alice,\n\nplease find the plan for Monday below. {YARA_MARKER if kind == 'yara' else ''}\n"
    )
    if kind == "eicar":
        made.add_attachment(EICAR.encode(), maintype="application", subtype="octet-stream", filename="test.com")
    return made


def main() -> int:
    last = "no answer"
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with smtplib.SMTP("127.0.0.1", 25, timeout=60) as session:
                session.send_message(message(sys.argv[1]), "anna@partner.example", ["alice@company.example"])
                return 0
        except (OSError, smtplib.SMTPException) as error:
            last = str(error)
            time.sleep(1)
    print(last, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
