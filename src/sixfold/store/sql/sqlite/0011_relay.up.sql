-- Adds calls of the gateway, and spending of keys with a budget.
-- What was asked of model servers, one row for each call; what keys with a budget have spent in a day or a month.
CREATE TABLE relay_call (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    key_id        TEXT,
    face          TEXT NOT NULL,
    model         TEXT NOT NULL,
    target        TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'left', 'failed')),
    holder        TEXT NOT NULL,
    streamed      INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    counted_by    TEXT NOT NULL DEFAULT '',
    held          INTEGER NOT NULL DEFAULT 0,
    cost          INTEGER NOT NULL DEFAULT 0,
    first_us      INTEGER NOT NULL DEFAULT 0,
    total_us      INTEGER NOT NULL DEFAULT 0,
    error         TEXT NOT NULL DEFAULT '',
    request       TEXT,
    response      TEXT,
    words         TEXT NOT NULL DEFAULT '',
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER
) STRICT;
CREATE INDEX relay_call_account ON relay_call (account_id, id);
CREATE INDEX relay_call_age ON relay_call (created_at);
CREATE INDEX relay_call_running ON relay_call (created_at) WHERE state = 'running';

CREATE TABLE key_spend (
    key_id TEXT NOT NULL,
    period TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (key_id, period)
) STRICT;

ALTER TABLE hold ADD COLUMN key_id TEXT;
