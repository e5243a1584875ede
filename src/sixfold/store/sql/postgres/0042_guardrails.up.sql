-- Adds guardrails of accounts and keys.
CREATE TABLE guardrail (
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    key_id     TEXT COLLATE "C" NOT NULL DEFAULT '',
    document   TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, key_id)
);
