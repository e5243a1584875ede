-- Adds guardrails of accounts and keys.
CREATE TABLE guardrail (
    account_id TEXT NOT NULL REFERENCES account (id),
    key_id     TEXT NOT NULL DEFAULT '',
    document   TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, key_id)
) STRICT;
