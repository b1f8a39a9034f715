-- Report mailboxes that guards poll over IMAP: one guard at a time holds the lease of a mailbox.
CREATE TABLE report_mailboxes (
    name text PRIMARY KEY, -- user@host:port/folder
    holder uuid, -- the poll that holds the lease
    leased_until timestamptz,
    next_poll timestamptz NOT NULL,
    polled_at timestamptz,
    failing_since timestamptz,
    failure text NOT NULL DEFAULT ''
);
