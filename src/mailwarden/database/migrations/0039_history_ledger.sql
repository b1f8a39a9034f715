-- The keys of rows that ClickHouse stores, for some days: a batch that is sent again counts and announces nothing twice.
CREATE TABLE history_ledger (
    ggrid uuid NOT NULL,
    tenant uuid NOT NULL,
    added date NOT NULL,
    PRIMARY KEY (ggrid, tenant)
);
CREATE INDEX history_ledger_added ON history_ledger (added);
