-- Adds the runs whose cached node outputs a workflow run has used, so that a refund of one withdraws what was derived from it.
CREATE TABLE graph_source (
    account_id    TEXT NOT NULL REFERENCES account (id),
    prediction_id TEXT NOT NULL,
    source_id     TEXT NOT NULL,
    expires_at    INTEGER NOT NULL,
    PRIMARY KEY (account_id, prediction_id, source_id)
) STRICT;
CREATE INDEX graph_source_expiry ON graph_source (expires_at);
