-- Cases: messages that users reported by mail, until an analyst closes the case with an outcome.

-- Row: a case, the reported messages of one campaign.
-- Written by: guard, with the first report; analysts, in the console.
-- Deleted by: guard, `history.retentionDays` after the last change.
CREATE TABLE cases (
    uid uuid PRIMARY KEY,
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    campaign uuid, -- within the tenant; NULL: the message has too little to compare
    subject text NOT NULL,
    sender text NOT NULL,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    outcome text CHECK (outcome IN ('malicious', 'spam', 'harmless', 'undecided')),
    opened_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    closed_by text NOT NULL DEFAULT '',
    agreed text CHECK (agreed IN ('phishing', 'spam', 'good')), -- what reporters agree on: it raises the priority
    CHECK ((state = 'closed') = (outcome IS NOT NULL))
);
CREATE UNIQUE INDEX cases_open_campaign ON cases (tenant, campaign) WHERE state = 'open' AND campaign IS NOT NULL;
CREATE INDEX cases_newest ON cases (tenant, changed_at DESC, uid DESC);

-- Row: one reported message of one report. A report that is not verified belongs to no case and has no effect.
-- Written by: guard; abby, when the case is closed.
-- Deleted by: guard, with its case, or after the same time if it has none.
CREATE TABLE case_reports (
    uid uuid PRIMARY KEY,
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    case_uid uuid REFERENCES cases (uid) ON DELETE CASCADE,
    mail bytea NOT NULL CHECK (octet_length(mail) = 32), -- SHA-256 of the report: a second delivery adds nothing
    number integer NOT NULL, -- of the message in the report
    reporter text NOT NULL, -- the address in lower case
    kind text NOT NULL CHECK (kind IN ('phishing', 'spam', 'good')),
    format text NOT NULL, -- of the report: forwarded as attachment, ARF, of a mail program, inline
    message_id text NOT NULL,
    subject text NOT NULL, -- this and the next two are of the reported message
    sender text NOT NULL,
    ggrid uuid, -- its row in history
    digest bytea, -- SHA-256 of the attached message
    contents bytea, -- compressed and sealed; NULL if it was not attached, is too large, or the case is closed
    reported_at timestamptz NOT NULL DEFAULT now(),
    trained_as text NOT NULL DEFAULT '', -- the kind that it was trained as, or not-stored
    -- To the reporter: none; wanted, once the case closes; then due, sending, and sent or failed.
    answer text NOT NULL DEFAULT 'none' CHECK (answer IN ('none', 'wanted', 'due', 'sending', 'sent', 'failed')),
    attempts integer NOT NULL DEFAULT 0,
    next_attempt timestamptz NOT NULL DEFAULT now(),
    base_address text NOT NULL DEFAULT '', -- the reporter without a sub-address: ann+x@ is ann@
    UNIQUE (tenant, mail, number)
);
CREATE INDEX case_reports_case ON case_reports (case_uid, reported_at);
CREATE INDEX case_reports_unverified ON case_reports (tenant, reported_at DESC) WHERE case_uid IS NULL;
CREATE INDEX case_reports_due ON case_reports (next_attempt) WHERE answer = 'due';

-- Row: how many messages an address reported on a day; reports beyond the bound are not stored.
-- Written by: guard, with each report.
-- Deleted by: guard, two days later.
CREATE TABLE case_report_days (
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    day date NOT NULL,
    reporter text NOT NULL, -- '' for all reports of a day that are not verified
    reports integer NOT NULL,
    PRIMARY KEY (tenant, day, reporter)
);

-- Row: a mailbox of reports that guards poll over IMAP: one guard at a time holds its lease.
-- Written by: guard, with each poll.
-- Deleted by: nothing.
CREATE TABLE report_mailboxes (
    name text PRIMARY KEY, -- user@host:port/folder
    holder uuid, -- the poll that holds the lease
    leased_until timestamptz,
    next_poll timestamptz NOT NULL,
    polled_at timestamptz,
    failing_since timestamptz,
    failure text NOT NULL DEFAULT ''
);
