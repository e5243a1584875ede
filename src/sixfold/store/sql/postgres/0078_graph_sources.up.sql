-- Adds the runs whose cached node outputs a workflow run has used, so that a refund of one withdraws what was derived from it.
CREATE TABLE graph_source (
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    prediction_id TEXT COLLATE "C" NOT NULL,
    source_id     TEXT COLLATE "C" NOT NULL,
    expires_at    BIGINT NOT NULL,
    PRIMARY KEY (account_id, prediction_id, source_id)
);
CREATE INDEX graph_source_expiry ON graph_source (expires_at);
