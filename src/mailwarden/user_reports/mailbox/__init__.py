"""Report mailboxes: read over IMAP, one mail after the other."""
