-- Verdicts, decisions and `policy.monitor` by day, for reports about weeks: one row for each tenant, and one for the
-- deployment under the nil uuid, also for a day without mail: it says that the day was counted.
CREATE TABLE history_days (
    tenant uuid NOT NULL,
    day date NOT NULL,
    counts jsonb NOT NULL,
    PRIMARY KEY (tenant, day)
);
CREATE INDEX history_days_day ON history_days (day);

INSERT INTO history_days (tenant, day, counts)
SELECT tenant, day, jsonb_object_agg(key, messages)
FROM (
    SELECT tenant, (bucket AT TIME ZONE 'UTC')::date AS day, key, sum(value::bigint) AS messages
    FROM history_rollups, jsonb_each_text(counts)
    WHERE hourly AND (key LIKE 'decision:%' OR key LIKE 'verdict:%' OR key = 'policy.monitor')
    GROUP BY 1, 2, 3
) AS counted
WHERE day > (SELECT (min(bucket) AT TIME ZONE 'UTC')::date FROM history_rollups WHERE hourly)
  AND day < (SELECT (rolled_to AT TIME ZONE 'UTC')::date FROM history_rolled)
GROUP BY tenant, day;

-- The campaign within the tenant. Rows of earlier versions have none, and are in no report of campaigns.
ALTER TABLE history ADD COLUMN campaign uuid;

-- The audit events of a tenant in one week.
CREATE INDEX audit_tenant_moment ON audit (tenant, moment);

-- Which tenants get the weekly report by email, since when, and which of their users receive it.
CREATE TABLE weekly_reports (
    tenant uuid PRIMARY KEY REFERENCES tenants (uid) ON DELETE CASCADE,
    enabled_since timestamptz, -- NULL: off
    recipients uuid[] NOT NULL DEFAULT '{}'
);

-- One row for each tenant and week that is due. `tried` has the users to whom a guard has sent it or is sending it.
CREATE TABLE weekly_report_mails (
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    week date NOT NULL, -- its Monday
    attempts integer NOT NULL DEFAULT 0,
    next_attempt timestamptz NOT NULL DEFAULT now(),
    tried uuid[] NOT NULL DEFAULT '{}',
    sent integer NOT NULL DEFAULT 0,
    failure text NOT NULL DEFAULT '',
    finished timestamptz,
    PRIMARY KEY (tenant, week)
);
CREATE INDEX weekly_report_mails_open ON weekly_report_mails (next_attempt) WHERE finished IS NULL;
