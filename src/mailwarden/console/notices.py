"""What a page says after something was done: the code travels in the address, the sentence stands here."""

from collections.abc import Mapping

DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": "You are signed out.",
    "not-done": "Your session had ended, so what you sent was not done. Sign in and do it once more.",
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
    "entries-added": "The list is changed. Scans go by it within two seconds.",
    "nothing-new": "All of that is in the list already: nothing was changed.",
    "entry-changed": "The entry is changed.",
    "entries-deleted": "The entries are gone. The history of the list can bring them back.",
    "nothing-deleted": "None of the entries was in the list: nothing was changed.",
    "undone": "The change is undone. This is the change that did it.",
    "undone-partly": "The change is undone, but for entries that were changed since: those are left as they are.",
    "nothing-to-undo": "There is nothing to undo: every entry of this change was changed since.",
    "report-kept": "Thank you. The report is kept, and the message is learned in a moment.",
    "report-unlearned": "Thank you. The report is kept. The message itself was not given, so that nothing is learned.",
    "report-withdrawn": "The report is taken back. Where it was learned already, all is learned anew without it.",
    "learning-reset": "Everything that was learned for this tenant is forgotten.",
    "release-asked": "The release is asked for. A guard does it within seconds, and this page tells what came of it.",
    "release-allowed": "The sender is allowed, and the release is asked for. A guard does it within seconds.",
    "held-deleted": "It is deleted.",
    "held-deleted-blocked": "It is deleted, and the sender is blocked.",
    "weights-changed": "The weights are changed. Guards know them within a second.",
    "session-ended": "The session has ended.",
    "sessions-ended": "Your other sessions have ended.",
}
