-- What history is searched by: one number for each term of a message (see history/terms.py), under one index a day.

-- The whole table is rewritten by neither: both columns have a default that costs nothing.
ALTER TABLE history ADD COLUMN remote_address inet;
ALTER TABLE history ADD COLUMN terms bigint[] NOT NULL DEFAULT '{}';

-- No row-level security here: its barrier keeps the index of terms from being asked, and a search would read every
-- row of every tenant. The one place that reads these rows names the tenants, and looks at each row once more.

-- Rows that were kept before: the same terms as the product makes, from their columns and the text of their record.
UPDATE history SET
    remote_address = substring(convert_from(record, 'UTF8') FROM '"remote_address":"([0-9a-fA-F:.]+)"')::inet,
    terms = ARRAY(
        SELECT DISTINCT ('x' || left(encode(sha256(convert_to(term, 'UTF8')), 'hex'), 16))::bit(64)::bigint
        FROM (
            SELECT unnest(ARRAY['verdict:' || verdict, 'decision:' || decision, 'tenant:' || tenant,
                                'from:' || lower(from_address), 'from:' || coalesce(nullif(lower(envelope_from), ''), '<>')])
            UNION ALL SELECT 'to:' || lower(recipient) FROM unnest(recipients) AS recipient
            UNION ALL SELECT 'tag:' || tag FROM unnest(tags) AS tag
            UNION ALL SELECT 'subject:' || left(word, 40)
                FROM regexp_split_to_table(lower(normalize(subject, NFKC)), '\W+') AS word WHERE word <> ''
            UNION ALL SELECT 'hash:' || found[1]
                FROM regexp_matches(convert_from(record, 'UTF8'), '"sha256":"([0-9a-f]{64})"', 'g') AS found
            UNION ALL SELECT kind || ':' || array_to_string(labels[start:], '.')
                FROM (
                    SELECT 'from' AS kind, split_part(lower(from_address), '@', -1) AS domain
                    UNION SELECT 'from', split_part(lower(envelope_from), '@', -1)
                    UNION SELECT 'to', split_part(lower(recipient), '@', -1) FROM unnest(recipients) AS recipient
                    UNION SELECT 'url', host FROM unnest(url_hosts) AS host
                ) AS domains
                CROSS JOIN LATERAL string_to_array(domain, '.') AS labels
                CROSS JOIN LATERAL generate_series(1, greatest(cardinality(labels) - 1, 1)) AS start
                WHERE domain <> ''
            UNION ALL SELECT 'ip:' || network(set_masklen(address, length))::text
                FROM (SELECT substring(convert_from(record, 'UTF8') FROM '"remote_address":"([0-9.]+)"')::inet AS address)
                     AS remote CROSS JOIN unnest(ARRAY[16, 24, 32]) AS length WHERE address IS NOT NULL
        ) AS made (term)
    );

-- Days to come get theirs when they are attached.
CREATE INDEX history_terms ON history USING gin (terms);

-- History counted by five minutes, and by hours: one row for each tenant, and one for the deployment under the nil
-- uuid. What is counted are verdicts, decisions, tags and classes of duration (see history/rollups.py).
CREATE TABLE history_rollups (
    tenant uuid NOT NULL,
    hourly boolean NOT NULL,
    bucket timestamptz NOT NULL,
    counts jsonb NOT NULL,
    PRIMARY KEY (tenant, hourly, bucket)
);

CREATE INDEX history_rollups_bucket ON history_rollups (hourly, bucket);

-- Up to when history has been counted, and from when it must be counted again because rows came late.
CREATE TABLE history_rolled (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    rolled_to timestamptz NOT NULL,
    late_from timestamptz
);
