-- Adds files and cached results of graphs.
-- Graphs: files by the names that clients gave or were told, and the outcomes of nodes by their keys.
CREATE TABLE graph_file (
    account_id TEXT NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (kind IN ('input', 'output', 'temp')),
    subfolder  TEXT NOT NULL,
    name       TEXT NOT NULL,
    media      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, kind, subfolder, name)
);

CREATE TABLE graph_outcome (
    account_id TEXT NOT NULL REFERENCES account (id),
    key        TEXT NOT NULL,
    media      TEXT,
    shown      TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, key)
);
CREATE INDEX graph_outcome_expiry ON graph_outcome (expires_at);
