-- Adds files and cached results of graphs.
-- Graphs: files by the names that clients gave or were told, and the outcomes of nodes by their keys.
CREATE TABLE graph_file (
    account_id TEXT NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (kind IN ('input', 'output', 'temp')),
    subfolder  TEXT NOT NULL,
    name       TEXT NOT NULL,
    media      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, kind, subfolder, name)
) STRICT;

CREATE TABLE graph_outcome (
    account_id TEXT NOT NULL REFERENCES account (id),
    key        TEXT NOT NULL,
    media      TEXT,
    shown      TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, key)
) STRICT;
CREATE INDEX graph_outcome_expiry ON graph_outcome (expires_at);
