"""What a page says after something was done: the code travels in the address, the sentence stands here."""

from collections.abc import Mapping

DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": "You are signed out.",
    "tenant-made": "The tenant is made. Guards know it within a second.",
    "tenant-changed": "The tenant is changed. Guards know it within a second.",
    "password-changed": "Your password is changed. Your other sessions have ended.",
    "totp-changed": "Your new authenticator is in use.",
    "passkey-added": "The passkey is yours. You can sign in with it alone.",
    "passkey-removed": "The passkey is removed.",
    "key-revoked": "The key is revoked. Within five seconds it is refused everywhere.",
    "person-moved": "The role is changed. It holds at once.",
    "person-disabled": "The person is shut out, and their sessions have ended.",
    "person-enabled": "The person may sign in again.",
    "link-withdrawn": "The link is good no longer.",
    "session-ended": "The session has ended.",
    "sessions-ended": "Your other sessions have ended.",
}
