-- The weekly report: who gets it, and the mails that are due.

-- Row: a tenant whose administrator has set up the report, and which of its users receive it.
-- Written by: administrators, in the console.
-- Deleted by: nothing but the deletion of the tenant.
CREATE TABLE weekly_reports (
    tenant uuid PRIMARY KEY REFERENCES tenants (uid) ON DELETE CASCADE,
    enabled_since timestamptz, -- NULL: off
    recipients uuid[] NOT NULL DEFAULT '{}'
);

-- Row: the report of a tenant and week that is due or was sent.
-- Written by: guard.
-- Deleted by: guard, half a year later.
CREATE TABLE weekly_report_mails (
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    week date NOT NULL, -- its Monday
    attempts integer NOT NULL DEFAULT 0,
    next_attempt timestamptz NOT NULL DEFAULT now(),
    tried uuid[] NOT NULL DEFAULT '{}', -- the users to whom a guard has sent it or is sending it
    sent integer NOT NULL DEFAULT 0,
    failure text NOT NULL DEFAULT '',
    finished timestamptz,
    PRIMARY KEY (tenant, week)
);
CREATE INDEX weekly_report_mails_open ON weekly_report_mails (next_attempt) WHERE finished IS NULL;
