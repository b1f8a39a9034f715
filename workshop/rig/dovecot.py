"""Dovecot: an IMAP server with one mailbox, on loopback, without TLS, with STARTTLS, and with TLS from the start."""

import imaplib
import os
from pathlib import Path

from workshop.rig.folders import make_folder
from workshop.rig.ports import free_port
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
OWNER = "mail"  # a user of every Debian that owns nothing here but the mails

_CONFIGURATION = """\
protocols = imap
listen = {host}
base_dir = {folder}/run
state_dir = {folder}/state
instance_name = rig-{port}
log_path = /dev/stderr
default_internal_user = dovecot
default_login_user = dovenull
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_failure_delay = 0
mail_location = maildir:{folder}/mails/%u
mail_max_userip_connections = 20
first_valid_uid = 1
ssl = {ssl}
ssl_cert = <{certificate}
ssl_key = <{key}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
  }}
  chroot =
}}
service anvil {{
  chroot =
  # A client with a wrong password would wait longer each time: no test waits for that.
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN {folder}/users
}}
userdb {{
  driver = static
  args = uid={owner} gid={owner} home={folder}/mails/%u
}}
"""


class Dovecot(ServerProcess):
    """Has the mailbox of `user`; `certificate` and `key` are PEM files, without them TLS is off."""

    def __init__(self, folder: Path, user: str, password: str, *, certificate: str = "", key: str = "") -> None:
        if os.geteuid() != 0:
            raise RigError("Dovecot starts as root alone")
        self.port, self.tls_port = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        self.user, self.password = user, password
        self.folder = make_folder(folder)
        make_folder(folder / "mails", OWNER, 0o700)
        self.set_password(password)
        text = _CONFIGURATION.format(
            host=HOST,
            folder=folder,
            port=self.port,
            tls_port=self.tls_port,
            ssl="yes" if certificate else "no",
            certificate=certificate,
            key=key,
            owner=OWNER,
        )
        lines = [line for line in text.splitlines() if certificate or not line.startswith(("ssl_cert", "ssl_key"))]
        configuration = folder / "dovecot.conf"
        configuration.write_text("\n".join(lines) + "\n", "ascii")
        command = [find_program("dovecot"), "-F", "-c", str(configuration)]
        super().__init__("dovecot", command, folder / "dovecot.log", self.answers)

    def set_password(self, password: str) -> None:
        """Change the password of the mailbox; Dovecot reads the file again after a second."""
        self.password = password
        users = self.folder / "users"
        users.write_text(f"{self.user}:{{PLAIN}}{password}\n", "ascii")
        users.chmod(0o644)

    def answers(self) -> bool:
        try:
            with self.session():
                return True
        except imaplib.IMAP4.error:
            return False

    def session(self) -> imaplib.IMAP4:
        """Return a session of the mailbox, which is a context manager."""
        session = imaplib.IMAP4(HOST, self.port, 5.0)
        session.login(self.user, self.password)
        return session

    def append(self, raw: bytes, folder: str = "INBOX") -> None:
        """Put a mail into a folder, as a delivery would."""
        with self.session() as session:
            kind, answer = session.append(folder, "", "", raw)
        if kind != "OK":
            raise RigError(f"Dovecot does not take the mail: {answer!r}")

    def mails(self, folder: str) -> list[bytes]:
        """Return the mails of a folder, none if it does not exist."""
        with self.session() as session:
            kind, (count, *_) = session.select(f'"{folder}"', readonly=True)
            if kind != "OK" or not count or count == b"0":
                return []
            _, answer = session.fetch("1:*", "(BODY.PEEK[])")
        return [part[1] for part in answer if isinstance(part, tuple)]
