"""User reports: read from a report mailbox, matched with history, grouped into cases, and answered."""
